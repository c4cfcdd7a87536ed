"""Every error message of the attention functions once: argument, place, wanted and got."""

import math
import re
import warnings

import numpy as np
import pytest
import torch

from simcore import attention_grid, distributed_attention
from simcore._attention_layers import as_words
from simcore._ops.attention import attention_similarity
from support.cases import attention, padded

WORDS = (4, 1, 6)
A = attention(WORDS, (3, 2))
B = attention(WORDS, (2,), seed=1)
BATCH = padded(A[0])


def replaced(layers, layer, sentence, value):
    """A copy of ``layers`` with one sentence of one layer replaced."""
    copy = [list(sentences) for sentences in layers]
    copy[layer][sentence] = value
    return copy


def spoiled(value, count):
    """The third sentence of A[1] with ``count`` bad weights on its lower triangle."""
    sentence = A[1][2].clone()
    sentence[0, range(count), 0] = value
    return replaced(A, 1, 2, sentence)


# name: (positional arguments, options, error, every word its message has to hold)
CASES = {
    "no layers": (([],), {}, ValueError, "A none"),
    "no layers in B": ((A, []), {}, ValueError, "B none"),
    "no sentences": (([A[0], []],), {}, ValueError, "A 1 sentence none"),
    "no heads": ((replaced(A, 1, 0, torch.ones(0, 4, 4)),), {}, ValueError, "A 1 0 head 4"),
    "no words": ((replaced(A, 1, 0, torch.ones(2, 0, 0)),), {}, ValueError, "A 1 0 word 2"),
    "no sequence": ((3.5,), {}, TypeError, "A float"),
    "layer no sequence": (([A[0], 3.5],), {}, TypeError, "A 1 float"),
    "layer a string": (([A[0], "layer"],), {}, TypeError, "A 1 str"),
    "sentence no array": ((replaced(A, 0, 1, "word"),), {}, TypeError, "A 0 1 str"),
    "integers": ((replaced(A, 1, 2, torch.ones(2, 6, 6).int()),), {}, TypeError, "A 1 2 int32"),
    "numpy integers": ((A, [[np.ones((1, 4, 4), int)]]), {}, TypeError, "B 0 0 int64"),
    "one layer for a list": ((A[0],), {}, ValueError, "A 0 list 3 4"),
    "one batch for a list": ((BATCH,), {}, ValueError, "A list 3 6"),
    "two axes": ((replaced(A, 0, 2, A[0][2][0]),), {}, ValueError, "A 0 2 H 6"),
    "not square": ((replaced(A, 0, 2, A[0][2][:, :5]),), {}, ValueError, "A 0 2 3 5 6"),
    "batch not square": (([BATCH[:, :, :5]],), {}, ValueError, "A 0 S 3 5 6"),
    "heads differ": ((replaced(A, 1, 2, A[0][2]),), {}, ValueError, "A 1 2 0 3 heads"),
    "sentences differ": ((A, [B[0][:2]]), {}, ValueError, "B 0 3 2 sentences"),
    "words differ": ((replaced(A, 1, 1, torch.ones(2, 3, 3)),), {}, ValueError, "A 1 0 3 words"),
    "words of B differ": ((A, replaced(B, 0, 1, torch.ones(2, 3, 3))), {}, ValueError, "B 0 1 3"),
    "lengths too long": (([BATCH],), {"lengths": (4, 1, 7)}, ValueError, "lengths 2 6 7 A 0"),
    "lengths of zero": (([BATCH],), {"lengths": (4, 0, 6)}, ValueError, "lengths 1 6 0"),
    "lengths too few": (([BATCH],), {"lengths": (4, 1)}, ValueError, "lengths 3 2 A 0"),
    "lengths no integers": (([BATCH],), {"lengths": (4, 1.0, 6)}, TypeError, "lengths 1 1.0"),
    "lengths a number": (([BATCH],), {"lengths": 3}, TypeError, "lengths sentence 3"),
    "causal no flag": ((A,), {"causal": "no"}, TypeError, "causal True False no"),
    "lengths booleans": (
        ([BATCH],),
        {"lengths": torch.tensor([True] * 3)},
        TypeError,
        "lengths 0 True",
    ),
    "lengths without padding": ((A,), {"lengths": WORDS}, ValueError, "lengths None 3"),
    "mask and lengths": (
        ([BATCH],),
        {"lengths": WORDS, "mask": torch.ones(3, 6)},
        ValueError,
        "mask None lengths both",
    ),
    "mask too short": (([BATCH],), {"mask": torch.ones(3, 5)}, ValueError, "mask 6 columns 5 A 0"),
    "mask of two": (([BATCH],), {"mask": torch.ones(2, 6)}, ValueError, "mask 3 sentence 2 A 0"),
    "mask of counts": (
        ([BATCH],),
        {"mask": torch.arange(18).reshape(3, 6) % 3},
        ValueError,
        "mask 0 1 other",
    ),
    "mask of one row": (([BATCH],), {"mask": [1, 1]}, ValueError, "mask S T 0 1 int64 2"),
    "mask of words": (([BATCH],), {"mask": [["a"]]}, ValueError, "mask S T 0 1"),
    "mask without words": (
        ([BATCH],),
        {"mask": [[1] * 6, [0] * 6, [1] * 6]},
        ValueError,
        "mask 1 word none",
    ),
    "mask with a gap": (
        ([BATCH],),
        {"mask": [[1, 1, 0, 1, 0, 0]] * 3},
        ValueError,
        "mask 0 without padding 3 words places 3",
    ),
    "mask without padding": ((A,), {"mask": torch.ones(3, 6)}, ValueError, "mask None padded 3"),
    "padding not left out": (([BATCH],), {}, ValueError, "A 0 NaN"),
    "device": ((replaced(A, 1, 0, A[1][0].to("meta")),), {}, ValueError, "A 1 0 cpu meta"),
    "devices": ((replaced(A, 0, 1, A[0][1].to("meta")),), {}, ValueError, "A 0 1 cpu as meta"),
    "NaN": ((spoiled(math.nan, 5),), {}, ValueError, "A 1 finite 5 106"),
    "infinity": ((A, spoiled(-math.inf, 2)), {}, ValueError, "B 1 2 106"),
    "NaN of causal attention": ((spoiled(math.nan, 5),), {"causal": True}, ValueError, "A 1 5 64"),
    "negative": ((spoiled(-0.1, 3),), {}, ValueError, "A 1 negative js 3 106"),
    "measure": ((A,), {"measure": "cosine"}, ValueError, "measure js pearson frobenius cosine"),
    "max_memory zero": ((A,), {"max_memory": 0}, ValueError, "max_memory 0"),
    "max_memory too small": ((A,), {"max_memory": 10}, ValueError, "max_memory 10 bytes"),
}


@pytest.mark.parametrize("given", [(torch.tensor(WORDS), None), (None, torch.ones(3, 6))])
def test_what_a_compiled_program_cannot_know_is_refused_there(given, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(TypeError, match=r"(lengths|mask): wanted .* under torch\.compile, got a "):
        as_words(*given)


def assert_holds(message, words):
    for word in words.split():
        assert re.search(rf"(?<!\w)(?<!\d\.){re.escape(word)}s?(?!\w)", message), (
            f"{word!r}: {message}"
        )


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    arguments, options, error, words = CASES[name]
    with pytest.raises(error) as caught:
        attention_grid(*arguments, **options)
    assert_holds(str(caught.value), words)


@pytest.mark.parametrize("measure", ["pearson", "frobenius"])
def test_negative_weights_are_welcome_elsewhere(measure):
    assert attention_grid(spoiled(-0.1, 3), measure=measure).isfinite().all()


def test_rows_that_are_no_distributions_are_warned_of():
    whole = torch.randn(3, 2, 6, 6, generator=torch.Generator().manual_seed(0)).softmax(-1)
    padded = whole.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attention_grid([padded])
    padded[1, :, 4:] = 0
    with pytest.warns(UserWarning, match=r"rows of A\[1\] do not sum to 1.*lengths") as caught:
        attention_grid([whole, padded])
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attention_grid([padded], measure="pearson")
        attention_grid([padded], causal=True)


DISTRIBUTED = {
    "no sentences": (([],), {}, ValueError, "layer none"),
    "a list of layers": ((A,), {}, TypeError, "layer 0 list"),
    "not square": (([torch.ones(2, 3, 4)],), {}, ValueError, "layer 0 2 3 4"),
    "device": (([A[0][0].to("meta")],), {}, ValueError, "layer 0 cpu meta"),
    "devices": (([A[0][0], A[0][1].to("meta")],), {}, ValueError, "layer 1 cpu as layer 0 meta"),
    "lengths": ((BATCH,), {"lengths": (4, 1, 7)}, ValueError, "lengths 2 6 7"),
    "lengths without padding": ((A[0],), {"lengths": WORDS}, ValueError, "lengths None"),
    "NaN": ((spoiled(math.nan, 5)[1],), {}, ValueError, "layer 5 106"),
    "NaN of causal attention": ((spoiled(math.nan, 5)[1],), {"causal": True}, ValueError, "5 64"),
}


@pytest.mark.parametrize("name", DISTRIBUTED)
def test_distributed_message(name):
    arguments, options, error, words = DISTRIBUTED[name]
    with pytest.raises(error) as caught:
        distributed_attention(*arguments, **options)
    assert_holds(str(caught.value), words)


FLAT = [sentence for layer in A for sentence in layer]
# What only a direct call of the operator can get wrong: (x, y, words, measure, what is told)
DIRECT = {
    "no layers": ([], [], WORDS, "js", "A none"),
    "no sentences": (FLAT, [], [], "js", "words none"),
    "a sentence is missing": (FLAT[:4], [], WORDS, "js", "A 3 layer 1 1"),
    "not square": ([FLAT[0][:, :3]], [], [4], "js", "3 4"),
    "heads": ([FLAT[0], FLAT[1][:2]], [], [4, 1], "js", "3 2"),
    "words": ([FLAT[0]], [FLAT[1]], [4], "js", "4 1"),
    "words of a batch": ([FLAT[0][None]], [], [5], "js", "1 4 5"),
    "sentences of a batch": ([FLAT[0][None]], [], [4, 4], "js", "2, H, T, T 1, 3, 4, 4"),
    "measure": (FLAT, [], WORDS, "cosine", "measure cosine"),
}


@pytest.mark.parametrize("name", DIRECT)
def test_message_of_the_operator(name):
    x, y, of_sentences, measure, words = DIRECT[name]
    if name == "no layers":  # torch looks for an implementation by the first tensor
        x, y = x, FLAT
    with pytest.raises(ValueError, match="wanted") as caught:
        attention_similarity(x, y, of_sentences, measure, False, 0)
    assert_holds(str(caught.value), words)


def test_options_are_keyword_only():
    with pytest.raises(TypeError, match="positional"):
        attention_grid(A, B, "js")
