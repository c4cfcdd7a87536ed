"""The last token that the head of a decoder reads is that of the mask, whatever the padding is."""

import numpy as np
import pytest
import torch

from simlab import extract, finetune, load_representations
from simlab.errors import UserError
from simlab.models.evaluate import predict_logits
from simlab.models.load import load_classifier, load_tokenizer
from simlab.models.sources import ModelSource
from simlab.tasks import Examples
from support.lab.tinymodels import END, byte_level_tokenizer, tiny_config
from support.tolerance import assert_same_forward

TEXTS = ("the unbelievable film is a bright and moving one", "dull plot", "some music", "a film")
EXAMPLES = Examples(("a", "b", "c", "d"), TEXTS, None, np.array([0, 1, 0, 1]))
PADDING = "[PAD]"


def with_end(tokenizer):
    """Let a tokenizer put its end of a text behind every text, as those of embeddings do."""
    from tokenizers.processors import TemplateProcessing

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"$A {END}", pair=f"$A $B {END}", special_tokens=[(END, tokenizer.eos_token_id)]
    )
    return tokenizer


def saved(folder, tokenizer, kind, padding):
    """Write a classifier whose configuration names `padding`, and a tokenizer."""
    from transformers import AutoModelForSequenceClassification

    config = tiny_config(kind, len(tokenizer))
    config.pad_token_id = padding
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3 if parameter.ndim > 1 else 1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return ModelSource(kind, folder)


def by_hand(source, tokenizer):
    """The logits at the last token of each text alone, and the states there."""
    model = load_classifier(source)
    logits, states = [], []
    for text in TEXTS:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.inference_mode():
            states.append(model.base_model(input_ids=ids).last_hidden_state[0, -1])
            logits.append(model.score(states[-1]))
    return torch.stack(logits), torch.stack(states)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize(
    ("padding", "added", "ends"),
    [
        pytest.param(None, None, False, id="none"),
        pytest.param(-1, None, False, id="minus one"),
        pytest.param(5, PADDING, False, id="another"),
        pytest.param(None, PADDING, True, id="end"),
        pytest.param(0, "as the end", True, id="end that pads"),
    ],
)
def test_the_head_reads_the_last_token(tmp_path, kind, padding, added, ends):
    tokenizer = byte_level_tokenizer([" ".join(TEXTS)])
    if ends:
        with_end(tokenizer)
    if added == PADDING:
        tokenizer.add_special_tokens({"pad_token": PADDING})
    elif added is not None:
        tokenizer.add_special_tokens({"pad_token": END, "bos_token": "<|begin|>"})
    source = saved(tmp_path, tokenizer, kind, padding)
    tokenizer = load_tokenizer(source)
    wanted, states = by_hand(source, tokenizer)
    found = predict_logits(load_classifier(source), tokenizer, EXAMPLES, 64)
    assert_same_forward(torch.from_numpy(found), wanted)
    text = tmp_path / "t.txt"
    text.write_text("\n".join(TEXTS))
    extract(source, text, tmp_path / "reps", split="all")
    last = load_representations(tmp_path / "reps").layers[-1]
    assert_same_forward(torch.from_numpy(np.array(last)), states)


@pytest.mark.parametrize("texts", [("a film", f"dull plot{END}"), (END, "a film")])
def test_a_text_that_ends_with_the_padding_token_has_no_head(tmp_path, texts):
    source = saved(tmp_path, byte_level_tokenizer([" ".join(TEXTS)]), "gpt2", None)
    examples = Examples(("a", "b"), texts, None, np.array([0, 1]))
    tokenizer = load_tokenizer(source)
    number = [text.endswith(END) for text in texts].index(True)
    with pytest.raises(UserError, match=rf"example {'ab'[number]}: wanted another last token than"):
        predict_logits(load_classifier(source), tokenizer, examples, 64)


def test_a_tokenizer_that_ends_texts_with_its_only_special_token(tmp_path, review_task):
    """Rows need no head, and training does."""
    source = saved(tmp_path / "m", with_end(byte_level_tokenizer([" ".join(TEXTS)])), "gpt2", None)
    extract(source, review_task, tmp_path / "reps", limit=4)
    with pytest.raises(UserError, match=r"wanted another last token than '<\|endoftext\|>', with"):
        finetune(source, review_task, tmp_path / "ft", max_steps=1)


def test_a_tokenizer_without_special_tokens_is_one_line(tmp_path):
    from transformers import PreTrainedTokenizerFast

    backend = byte_level_tokenizer([" ".join(TEXTS)]).backend_tokenizer
    bare = PreTrainedTokenizerFast(tokenizer_object=backend)
    source = saved(tmp_path, bare, "gpt2", None)
    with pytest.raises(UserError, match="wanted a tokenizer with a padding token, found one with"):
        load_tokenizer(source)
    bare.pad_token = "a"
    bare.save_pretrained(tmp_path)
    assert load_tokenizer(source).pad_token == "a"
