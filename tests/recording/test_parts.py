"""Parts of an output that have axes of their own, and the inputs of modules."""

import types

import pytest
import torch
from torch import nn

from simcore import Track, compare, record
from support.nets import Encoder, seeded, taped, token_batches

B, T, P, LAYERS = 5, 4, 3, 2
STATES = torch.randn(B, T, P, generator=torch.Generator().manual_seed(0))
POOLED = {  # of [B, layers, p]
    "first": lambda states: states[:, 0],
    "last": lambda states: states[:, -1],
    "mean": lambda states: states.mean(1),
    "tokens": lambda states: states.flatten(0, 1),
    "flatten": lambda states: states.flatten(1),
}


class Wrapped(nn.Module):
    """Gives the output of a recurrent module, or of attention, as it is."""

    def __init__(self, kind, batch_first, attention=False):
        super().__init__()
        self.attention, self.turns = attention, not batch_first
        self.inner = (
            nn.MultiheadAttention(P, 1, batch_first=batch_first)
            if attention
            else kind(P, 6, LAYERS, batch_first=batch_first, bidirectional=True)
        )

    def forward(self, x, attention_mask=None):
        x = x.transpose(0, 1) if self.turns else x
        return self.inner(x, x, x) if self.attention else self.inner(x)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_last_states_of_recurrent_modules(kind, batch_first):
    """Their axes are [layers, B, p]; a mask of the tokens is none of theirs."""
    model = seeded(nn.Sequential, seeded(Wrapped, kind, batch_first))
    last = model(STATES)[1]
    last = (last[0] if kind is nn.LSTM else last).detach().transpose(0, 1)
    assert last.shape == (B, 2 * LAYERS, 6)
    mask = torch.ones(B, T)
    for name in ("0.inner", "0"):  # the module, and one that gives its output
        for pool, rows in POOLED.items():
            tape = taped(model, name, [STATES], pool=pool, select=1, mask=mask)
            torch.testing.assert_close(tape.layers()[name], rows(last), rtol=0, atol=1e-6)


@pytest.mark.parametrize("batch_first", [True, False])
def test_other_parts_by_a_function(batch_first):
    model = seeded(Wrapped, nn.LSTM, batch_first)
    cells = model(STATES)[1][1].detach()
    for select in (lambda output: output[1][1], lambda output: output[1][1].transpose(0, 1)):
        tape = taped(model, "inner", [STATES], pool="last", mask=False, select=select)
        assert torch.equal(tape.layers()["inner"], cells[-1])
    options = {"pool": lambda states: states[-1], "select": lambda output: output[1][1]}
    assert torch.equal(taped(model, "inner", [STATES], **options).layers()["inner"], cells[-1])


@pytest.mark.parametrize("batch_first", [True, False])
def test_weights_of_attention(batch_first):
    """[B, L, S], whatever `batch_first` says."""
    model = seeded(Wrapped, None, batch_first, attention=True)
    weights = model(STATES)[1].detach()
    assert weights.shape == (B, T, T)
    for pool in ("first", "mean", "flatten"):
        tape = taped(model, "inner", [STATES], pool=pool, select=1, mask=False)
        assert torch.equal(tape.layers()["inner"], POOLED[pool](weights))


def test_sequences_of_a_wrapper_of_a_time_first_module():
    model = seeded(nn.Sequential, seeded(Wrapped, nn.GRU, False), seeded(First))
    wanted = model(STATES).detach().transpose(0, 1)
    for name in ("0", "1"):
        tape = taped(model, name, [STATES], pool="last", mask=False)
        assert torch.equal(tape.layers()[name], wanted[:, -1])


class First(nn.Module):
    """Gives the first part of its input, after a dropout that does nothing."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout()

    def forward(self, parts):
        return self.dropout(parts[0])


def test_two_models_by_the_last_state():
    models = [seeded(Wrapped, kind, True) for kind in (nn.LSTM, nn.GRU)]
    data = STATES.repeat(6, 1, 1).add(torch.arange(6).repeat_interleave(B)[:, None, None]).split(B)
    result = compare(*models, data, "inner", select=1, pool="last", mask=False)
    x, y = ([model(batch)[1] for batch in data] for model in models)
    x, y = torch.cat([h[0][-1] for h in x]), torch.cat([h[-1] for h in y])
    x, y = (rows.detach().double() - rows.detach().double().mean(0) for rows in (x, y))
    norms = (x.T @ x).norm() * (y.T @ y).norm()
    assert result.n == 6 * B
    assert abs(result.values.item() - ((x.T @ y).norm() ** 2 / norms).item()) < 1e-6


def test_a_part_whose_axes_are_not_known_is_refused():
    class Unknown(nn.Module):
        def forward(self, x):
            return {"out": x, "states": x.transpose(0, 1) * 1}

    model = nn.Sequential(Unknown()).eval()
    message = (
        r"select: wanted a function for the part 'states' of the output of '0', whose axes .* got "
        r"shape \(4, 5, 3\) for 5 examples; .*output\['states'\].transpose\(0, 1\)"
    )
    with pytest.raises(ValueError, match=message):
        taped(model, "0", [STATES], pool="mean", mask=False, select="states")
    options = {"pool": "mean", "mask": False}
    for select in ("out", lambda output: output["states"].transpose(0, 1)):
        got = taped(model, "0", [STATES], select=select, **options).layers()["0"]
        torch.testing.assert_close(got, STATES.mean(1))


def test_a_part_of_an_object_that_is_no_container():
    class Plain(nn.Module):
        def forward(self, x):
            return types.SimpleNamespace(states=x)

    model = nn.Sequential(Plain()).eval()
    tape = taped(model, "0", [STATES], pool="last", mask=False, select="states")
    assert torch.equal(tape.layers()["0"], STATES[:, -1])


def test_inputs_are_recorded_beside_outputs():
    model, batch = seeded(Encoder), token_batches(1)[0]
    names = ["head:input", "head", "layer.*:input", "embed"]
    tape = taped(model, names, [batch], pool="last")
    layers, mask = tape.layers(), batch["attention_mask"]
    assert tape.names == (
        *("embed", "layer.0:input", "layer.1:input", "layer.2:input", "head:input", "head"),
    )
    states = model.embed(batch["ids"]).detach()
    last = torch.arange(len(mask)), mask.sum(1) - 1
    for layer in range(3):
        assert torch.equal(layers[f"layer.{layer}:input"], states[last])
        states = (states + torch.tanh(model.layer[layer](states))).detach()
    assert torch.equal(layers["head:input"], states[:, 0])
    assert torch.equal(layers["embed"], layers["layer.0:input"])


def test_inputs_by_name_of_an_argument_and_before_they_change():
    class Changing(nn.Module):
        def forward(self, *, x):
            return x.mul_(2)

    model = nn.ModuleDict({"a": Changing()}).eval()
    model.forward = lambda x: model["a"](x=x + 1)
    layers = taped(model, ["a:input", "a"], [STATES], pool="flatten").layers()
    assert torch.equal(layers["a:input"], (STATES + 1).flatten(1))
    assert torch.equal(layers["a"], 2 * (STATES + 1).flatten(1))


def test_axes_of_inputs():
    signals = STATES.transpose(1, 2)  # [B, C, T]
    model = seeded(nn.Sequential, nn.Conv1d(P, T, 1), nn.ReLU(), nn.Conv1d(T, 2, 1))
    inner = torch.relu(model[0](signals)).detach()  # [5, 4, 4]
    layers = taped(model, ["0:input", "2:input"], [signals], pool="spatial-mean").layers()
    torch.testing.assert_close(layers["0:input"], signals.mean(2))
    torch.testing.assert_close(layers["2:input"], inner.mean(2))
    model = seeded(Wrapped, nn.GRU, False)
    layers = taped(model, "inner:input", [STATES], pool="last", mask=False).layers()
    assert torch.equal(layers["inner:input"], STATES[:, -1])


def test_inputs_elsewhere():
    model = seeded(nn.Sequential, nn.Linear(P, 6), nn.ReLU(), nn.Linear(6, 2))
    rows = STATES[:, 0]
    assert compare(model, None, [rows], ["**:input"]).rows == ("0:input", "1:input", "2:input")
    assert Track(model, ["2:input", "2"], rows).layers == ("2:input", "2")
    with pytest.raises(ValueError, match=r"wanted '3' to match a module .* no match"):
        record(model, "3:input")
    other = nn.ModuleDict({"0": nn.Identity(), "1": nn.Identity()}).eval()
    other.forward = lambda x: other["1"](x)
    with pytest.raises(ValueError, match="got '0:input', never called"):
        taped(other, ["0:input", "1"], [rows])
