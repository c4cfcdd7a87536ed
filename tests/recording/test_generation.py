"""Generation: the pass of the prompt is recorded, unless all are asked for."""

import copy

import pytest
import torch
from torch import nn

from simcore import record
from support.nets import seeded


def taped_in(tape, model, *calls):
    with tape:
        for arguments in calls:
            model(*arguments)


class Generator(nn.Module):
    """Generates by calling itself; with a cache of the number of tokens seen, or without."""

    def __init__(self, cached):
        super().__init__()
        self.embed, self.cached = nn.Embedding(20, 4), cached

    def forward(self, input_ids, past_key_values=None):
        return self.embed(input_ids).sum(-1).argmax(1)

    def generate(self, input_ids, steps=3):
        past = None
        for _ in range(steps):
            new = self(input_ids if past is None else input_ids[:, -1:], past)[:, None]
            if self.cached:
                past = [[torch.zeros(len(input_ids), 2, input_ids.shape[1], 4)]]
            input_ids = torch.cat([input_ids, new], 1)
        return input_ids


@pytest.mark.parametrize("cached", [True, False])
def test_generation(cached):
    model, ids = seeded(Generator, cached), torch.randint(0, 20, (2, 5))
    method = Generator.generate
    options = {"pool": "tokens", "mask": False}
    with record(model, "embed", **options) as tape, record(model, "embed", **options):
        model.generate(ids)
        model.generate(ids + 1 - ids % 2, steps=1)
        assert copy.deepcopy(model).generate.args[0] is not model
    assert tape.row_counts() == {"embed": 20}
    assert torch.equal(tape.layers()["embed"][:10], model.embed(ids).flatten(0, 1))
    assert "generate" not in vars(model)
    assert model.generate.__func__ is method
    with record(model, "embed", generate="all", **options) as tape:
        model.generate(ids)
    assert tape.row_counts() == {"embed": 2 * (5 + 1 + 1) if cached else 2 * (5 + 6 + 7)}


def test_steps_of_a_loop_of_ones_own():
    model, ids = seeded(Generator, True), torch.randint(0, 20, (2, 5))
    past = [[torch.zeros(2, 2, 5, 4)]]
    with record(model, "embed", pool="tokens", mask=False) as tape:
        model(ids)
        model(ids[:, :1], past)  # a new token
        model(ids[:, :3], past)  # a text after a prefix
    assert tape.row_counts() == {"embed": 2 * (5 + 3)}
    tape = record(model, "embed", pool="tokens", mask=False)

    def continued_and_then_outside():
        with tape:
            model(ids[:, :1], past)
            model.embed(ids)

    with pytest.raises(RuntimeError, match="got one of 'embed' outside of it"):
        continued_and_then_outside()
    tape = record(model, "embed", pool="tokens", mask=False)
    with pytest.raises(RuntimeError, match="got none but 1 that generate='prompt' leaves out"):
        taped_in(tape, model, (ids[:, :1], past))


def test_methods_of_an_instance_are_given_back():
    model = seeded(Generator, True)
    model.generate = own = lambda ids: model(ids)
    with record(model, "embed", pool="first"):
        model.generate(torch.zeros(2, 5, dtype=torch.long))
    assert model.generate is own
