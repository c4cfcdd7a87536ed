"""Whether rows depend on the batch, on models whose rows are known; families: test_families.py."""

from types import SimpleNamespace

import pytest
import torch
from transformers.modeling_outputs import SequenceClassifierOutput

from simlab.errors import UserError
from simlab.models.batches import reads_padding
from support.lab.tinymodels import tiny_tokenizer

# Thirty lengths, ten times each: 12 batches of 25, of which most have padding.
TEXTS = ["film " * (1 + number % 30) for number in range(300)]


class Known(torch.nn.Module):
    """Embeddings, and what `mix` makes of states [b, t, p] and the mask [b, t, 1]."""

    def __init__(self, mix, dtype=torch.float32):
        super().__init__()
        self.mix, self.rows = mix, 0
        self.words = torch.nn.Embedding(99, 4, dtype=dtype)

    def forward(self, input_ids, attention_mask, **_):
        self.rows += len(input_ids)
        states, logits = self.mix(self.words(input_ids), attention_mask[..., None])
        return SequenceClassifierOutput(logits=logits, hidden_states=(states,))


def masked(states, mask):
    return states, (states * mask).sum(1) / mask.sum(1)


MIXED = {
    "a head that averages padding": lambda states, _: (states, states.mean(1)),
    "a neighbour's embedding": lambda states, mask: masked(states + states.roll(-1, 1), mask),
    "the other texts": lambda states, mask: masked(states - states.mean(0), mask),
}


def measured(model, side="right", texts=TEXTS):
    tokenizer = tiny_tokenizer()
    tokenizer.padding_side = side
    encoded = [dict(tokenizer(text)) for text in texts]
    return reads_padding(model, tokenizer, encoded, 25)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_is_no_dependence_and_takes_few_passes(side, dtype):
    model = Known(masked, dtype)
    assert not measured(model, side)
    assert 3 <= model.rows <= 0.02 * len(TEXTS)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("what", MIXED)
def test_rows_that_depend_on_the_batch_are_seen(what, side, capsys):
    assert measured(Known(MIXED[what]), side)


def test_blocks_that_only_texts_of_middle_lengths_do_not_see_are_found():
    """As sparse attention has them: beside long texts, a text is cut after eight tokens."""

    def cut(states, mask):
        blocks = states.shape[1] > 32
        seen = mask * (torch.arange(states.shape[1]) < 8)[:, None] if blocks else mask
        mean = (states * seen).sum(1, keepdim=True) / seen.sum(1, keepdim=True)
        return masked(states + mean, mask)

    short, middle, long = ("film " * count for count in (2, 12, 40))
    assert measured(Known(cut), texts=[short, middle, long])
    assert not measured(Known(cut), texts=[short, long])


def test_a_model_that_takes_no_texts_is_one_line():
    def fail(_states, _mask):
        raise AttributeError("no pictures")

    with pytest.raises(UserError, match="type 'Known': wanted a model that takes texts and nothin"):
        measured(Known(fail))
    quantised = Known(fail)
    quantised.config = SimpleNamespace(quantization_config={"load_in_8bit": True})
    with pytest.raises(UserError, match=r"wanted quantised weights that transformers runs .* no p"):
        measured(quantised)
