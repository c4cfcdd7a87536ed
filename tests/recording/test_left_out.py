"""Modules that a glob matches, and that never run or have no row for each example."""

import warnings

import pytest
import torch
from torch import nn
from transformers import AutoModel

from simcore import Track, compare, record
from support.lab.tinymodels import LAYERS, tiny_config
from support.nets import Encoder, seeded, taped, token_batches

# name: (modules that never run, modules without a row for each example)
LEFT_OUT = {
    "bert": (
        [f"encoder.layer.{k}.attention.self.dropout" for k in range(LAYERS)],
        ["embeddings.position_embeddings"],
    ),
    "gpt2": ([f"h.{k}.attn.attn_dropout" for k in range(LAYERS)], ["wpe"]),
    "llama": ([], ["rotary_emb"]),
}


def batches(count=2, size=6, tokens=7):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        mask = torch.ones(size, tokens, dtype=torch.long)
        mask[1, 4:] = 0
        ids = torch.randint(5, 27, (size, tokens), generator=generator)
        yield {"input_ids": ids, "attention_mask": mask}


def message(never, unfit):
    told = []
    if never:
        names = ", ".join(map(repr, never))
        told.append(f"modules that the forward pass never calls: {names}")
    if unfit:
        names = ", ".join(map(repr, unfit))
        told.append(f"modules without a row for each example: {names}")
    return "record: left out " + "; ".join(told)


@pytest.mark.parametrize("pool", ["flatten", "mean"])
@pytest.mark.parametrize("name", LEFT_OUT)
def test_all_modules_of_models_of_transformers(name, pool):
    """The call that stands for all layers on the page for users of torch-cka."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModel.from_config(tiny_config(name)).eval()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = compare(model, None, batches(), "**", pool=pool, streaming=True)
    told = [str(one.message) for one in caught if str(one.message).startswith("record")]
    assert told == [message(*LEFT_OUT[name])]
    assert result.n == 12
    states = dict(taped(model, [*result.rows], batches(), pool=pool).layers())  # these have rows
    assert set(result.rows) == set(states)
    left = {*LEFT_OUT[name][0], *LEFT_OUT[name][1]}
    runs = {n for n, m in model.named_modules() if n and not isinstance(m, nn.ModuleList)}
    assert set(result.rows) == runs - left


class Odd(Encoder):
    """Has modules that give one row for all examples, indices, and nothing."""

    def __init__(self):
        super().__init__()
        self.positions, self.order, self.unused = nn.Embedding(9, 8), Order(), nn.Linear(2, 2)

    def forward(self, ids, attention_mask=None):
        positions = self.positions(torch.arange(ids.shape[1])[None])
        self.order(positions)
        return super().forward(ids, attention_mask)


class Order(nn.Module):
    def forward(self, x):
        return x.argmax(-1)


@pytest.mark.parametrize("pool", ["flatten", "mean", "tokens", "first"])
@pytest.mark.parametrize("mask", [None, False])
def test_what_is_left_out_by_every_pool(pool, mask):
    model = seeded(Odd)
    calls = [*token_batches(2), *token_batches(1, size=1)]
    options = {"pool": pool, "mask": mask}
    with pytest.warns(UserWarning, match="never calls: 'unused'; .*'positions', 'order'") as caught:
        tape = taped(model, ["embed", "positions*", "order*", "un*", "layer.*"], calls, **options)
    assert len(caught) == 1
    names = ["embed", "layer.0", "layer.1", "layer.2"]
    assert list(tape.layers()) == names
    wanted = taped(model, names, calls, **options).layers()
    assert all(torch.equal(tape.layers()[name], wanted[name]) for name in names)


@pytest.mark.parametrize("mask", [None, False])
@pytest.mark.parametrize("turn", [0, 1])
def test_one_call_without_the_examples_leaves_a_module_out(mask, turn):
    class Twice(Encoder):
        def forward(self, ids, attention_mask=None):
            calls = [super().forward, lambda *_: self.layer[0](self.embed.weight)]
            return [call(ids, attention_mask) for call in calls[:: 1 - 2 * turn]]

    with pytest.warns(UserWarning, match=message([], ["layer.0"])):
        tape = taped(seeded(Twice), "layer.*", token_batches(2), pool="mean", mask=mask)
    assert tape.row_counts() == {"layer.1": 8, "layer.2": 8}


def test_a_function_that_pools_gets_all_modules():
    options = {"pool": lambda states: states.flatten(0, -2), "mask": False}
    tape = taped(seeded(Odd), ["embed", "layer.*", "pos*"], token_batches(2), **options)
    assert tape.row_counts()["positions"] == 2 * 7


def test_names_are_not_left_out():
    calls, model = token_batches(1), seeded(Odd)
    with pytest.raises(ValueError, match="got 'unused', never called"):
        taped(model, ["layer.*", "unused"], calls, pool="flatten")
    with pytest.raises(TypeError, match="the output of 'order'"):
        taped(model, ["layer.*", "order"], calls, pool="flatten")
    with pytest.raises(ValueError, match=r"wanted shape \(1, 7\) .* 'positions'"):
        taped(model, ["*", "positions"], calls, pool="mean")
    counts = taped(model, ["embed", "positions"], calls, pool="flatten").row_counts()
    assert counts == {"embed": 4, "positions": 1}


def test_a_glob_that_matches_no_others():
    with pytest.raises(ValueError, match=r"a row for each example, got 'positions'$"):
        taped(seeded(Odd), "pos*", token_batches(1), pool="mean")
    with pytest.raises(ValueError, match="got 'unused', never called"):
        taped(seeded(Odd), "unu*", token_batches(1), pool="mean")


def test_modules_are_not_left_out_where_the_examples_are_not_known():
    """Windows of a picture have more rows than the call has examples, in most modules."""

    class Windows(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Identity(), nn.Identity(), nn.Identity()

        def forward(self, x):
            return self.c(self.b(self.a(x).unflatten(1, (2, -1)).flatten(0, 1)))

    x = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tape = taped(Windows().eval(), "*", [x], pool="flatten")
    assert tape.row_counts() == {"a": 5, "b": 10, "c": 10}


def test_a_time_first_model_has_examples_on_the_second_axis():
    """Its blocks are turned, and what is inside them is not, so that neither is left out."""
    layer = seeded(nn.TransformerEncoderLayer, 8, 2, 16)
    model = nn.Sequential(layer).eval()
    x = torch.randn(7, 5, 8, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tape = taped(model, ["0", "0.[ln]*[r12]"], [x], pool="flatten")
    assert tape.row_counts()["0"] == 5
    assert tape.row_counts()["0.linear1"] == 7
    with pytest.raises(ValueError, match="wanted as many rows in every layer"):
        compare(model, None, [x], ["[0]", "0.linear?", "0.norm?"], pool="flatten")
    mask = torch.ones(5, 7)
    with pytest.warns(UserWarning, match="without a row for each example: '0.linear1'"):
        tape = taped(model, ["0", "0.linear1*"], [x], pool="mean", mask=mask)
    assert tape.row_counts() == {"0": 5}


def test_a_track_tells_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        other = {"other": seeded(Odd)}
        track = Track(seeded(Odd), "*", token_batches(2), pool="mean", references=other)
        track.step(1)
        track.step(2)
    assert len([one for one in caught if "left out" in str(one.message)]) == 1
    assert track.layers == ("embed", "dropout#0", "dropout#1", "dropout#2", "head")


def test_the_line_of_the_caller():
    model = seeded(Odd)
    with pytest.warns(UserWarning, match="left out") as caught, record(model, "*", pool="mean"):
        model(**token_batches(1)[0])
    assert caught[0].filename == __file__
