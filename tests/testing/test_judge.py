"""Layers with planted differences, and noise that was planted too."""

import json

import numpy as np
import pytest
import torch

from simcore.testing import judge_alike

N, P = 60, 16
EPS = torch.finfo(torch.float32).eps


@pytest.fixture
def a():
    """Return layers whose columns and rows differ a hundredfold in scale."""
    generator = torch.Generator().manual_seed(0)
    columns = torch.logspace(-1, 1, P)
    rows = torch.logspace(-1, 1, N)[torch.randperm(N, generator=generator), None]
    return {f"h.{i}": torch.randn(N, P, generator=generator) * columns * rows for i in range(5)}


def noisy(states, seed, size=EPS):
    generator = torch.Generator().manual_seed(seed)
    return {
        name: layer + layer * size * torch.randn(layer.shape, generator=generator)
        for name, layer in states.items()
    }


def orthogonal(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(P, P, dtype=torch.float64, generator=generator))[0]


def judged(a, b, **options):
    return judge_alike(a, b, {"again": noisy(a, 1), "other": noisy(a, 2)}, **options)


def verdicts(result):
    return [layer.verdict for layer in result.layers]


def test_equal_layers_have_equal_bits_without_noise(a):
    result = judge_alike(a, {name: layer.numpy().copy() for name, layer in a.items()})
    assert verdicts(result) == ["equal bits"] * 5
    assert result.is_alike()
    assert result.first() is None
    assert str(result).startswith("alike: all 5 layers")
    assert "not measured" in str(result)


@pytest.mark.parametrize("size", [1.0, 1e2, 1e4])
def test_noise_is_what_was_measured(a, size):
    noise = {"again": noisy(a, 1, size * EPS), "other": noisy(a, 2, size * EPS)}
    assert set(verdicts(judge_alike(a, noisy(a, 3, size * EPS), noise))) == {"equal within noise"}
    larger = noisy(a, 3, 100 * size * EPS)
    assert set(verdicts(judge_alike(a, larger, noise))) == {"different"}


def test_a_less_precise_dtype_rounds_more(a):
    b = {name: layer.bfloat16() for name, layer in a.items()}
    assert set(verdicts(judge_alike(a, b))) == {"equal within noise"}
    coarse = {name: layer.float() for name, layer in b.items()}
    assert set(verdicts(judge_alike(a, coarse))) == {"different"}


def test_one_entry_of_an_ordinary_column_is_found_beside_a_huge_one(a):
    for layer in a.values():
        layer[:, 0] *= 1e4
    b = {name: layer.clone() for name, layer in a.items()}
    row = int(b["h.2"][:, 5].abs().argsort()[N // 2])
    b["h.2"][row, 5] *= 1 + 1e-3  # 1e-8 of the layer
    first = judged(a, b).first()
    assert first.name == "h.2"
    assert first.verdict == "different"
    assert first.rows[0] == row
    assert first.difference < 1e-6


def test_maps_of_the_neurons_are_named(a):
    permuted = torch.randperm(P, generator=torch.Generator().manual_seed(3))
    b = dict(a)
    b["h.1"] = 3 * a["h.1"]
    b["h.2"] = a["h.2"][:, permuted]
    b["h.3"] = (a["h.3"].double() @ orthogonal()).float()
    b["h.4"] = (0.5 * a["h.4"].double() @ orthogonal()).float()
    result = judged(a, b)
    assert verdicts(result) == ["equal bits", "scaled", "permuted", "rotated", "rotated"]
    assert [round(1 / layer.scale, 4) for layer in result.layers] == [1, 3, 1, 1, 0.5]
    assert result.first().name == "h.1"
    assert result.first("scaled").name == "h.2"
    assert result.first("permuted").name == "h.3"
    assert result.is_alike("rotated")
    assert not result.is_alike("permuted")


def test_other_maps_are_different(a):
    sheared = torch.eye(P)
    sheared[0, 1] = 0.01
    changes = {
        "a shear": a["h.0"] @ sheared,
        "a shift": a["h.0"] + 1,
        "a neuron of another scale": a["h.0"] * torch.linspace(1, 1.01, P),
        "the negative": -a["h.0"] + 0.01,
        "rows in another order": a["h.0"].flip(0),
    }
    for change, layer in changes.items():
        assert judged(a, {**a, "h.0": layer}).layers[0].verdict == "different", change


def test_a_rotation_of_fewer_rows_than_columns_is_found(a):
    few = {name: layer[:6] for name, layer in a.items()}
    b = {name: (layer.double() @ orthogonal()).float() for name, layer in few.items()}
    assert set(verdicts(judge_alike(few, b))) == {"rotated"}
    other = {name: layer[6:12] for name, layer in a.items()}
    assert set(verdicts(judge_alike(few, other))) == {"different"}


def test_a_layer_that_turns_nan_is_different(a):
    b = {**a, "h.3": a["h.3"].clone()}
    b["h.3"][7, 2] = torch.nan
    result = judged(a, b)
    assert result.first().name == "h.3"
    assert result.first().rows == (7,)
    assert "NaN or infinite entries in 1 of 60 rows of B" in str(result)
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["layers"][3]["ratio"] is None


def renumbered(layers):
    return {f"h.{i}": layer for i, layer in enumerate(layers)}


@pytest.mark.parametrize("shift", [1, 2, -1])
def test_a_shift_is_named(a, shift):
    layers = list(a.values())
    before = [torch.randn(N, P) for _ in range(-shift)]
    b = renumbered([*before, *noisy(renumbered(layers[max(shift, 0) :]), 4).values()])
    result = judged(a, b)
    assert f"A has 5 layers, B has {5 - shift}" in result.message
    assert "later" in result.message if shift < 0 else "earlier" in result.message
    assert verdicts(result).count("missing") == abs(shift)
    assert verdicts(result).count("equal within noise") == min(5, 5 - shift)
    line = str(result).splitlines()[1]
    assert f"all {min(5, 5 - shift)} that both have are alike, the worst: equal within" in line
    assert f"{'A' if shift < 0 else 'B'} has no such layer{', nor 1 more' * (shift == 2)};" in line
    assert line.startswith("not alike: ")
    assert not result.is_alike()


def test_a_shift_of_as_many_layers_is_named(a):
    b = renumbered([torch.randn(N, P), *list(a.values())[:-1]])
    result = judged(a, b)
    assert result.message == (
        "shifted: the layers of A are those of B 1 place later: 'h.0' of A is 'h.1' of B"
    )


def test_layers_without_names_in_common_pair_by_place(a):
    b = {f"block_{i}": layer for i, layer in enumerate(a.values())}
    result = judged(a, b)
    assert verdicts(result) == ["equal bits"] * 5
    assert "h.0 ~ block_0: equal bits" in str(result)


def test_a_layer_that_is_missing_stands_alone(a):
    b = {name: layer for name, layer in a.items() if name != "h.2"}
    result = judged(a, b)
    assert verdicts(result)[2] == "missing"
    assert verdicts(result).count("equal bits") == 4
    assert result.first().note == "B has no such layer"


def test_the_report_names_rows(a):
    b = {**a, "h.1": a["h.1"].clone()}
    b["h.1"][40] += 1
    text = str(judged(a, b, labels=[f"text {i}" for i in range(N)]))
    assert text.splitlines()[0].startswith("first that diverges, 2 of 5: h.1: different: ")
    assert "40 (text 40)" in text.splitlines()[1]
    assert len([line for line in text.splitlines() if line.startswith("h.")]) == 5


def test_layers_of_other_shapes(a):
    wide = judged(a, {**a, "h.0": torch.randn(N, P + 1)})
    assert wide.layers[0].verdict == "different"
    assert "17 in B" in wide.layers[0].note
    fewer = judged(a, {**a, "h.0": torch.randn(N - 1, P)})  # as of a pooler beside layers of tokens
    assert [layer.verdict for layer in fewer.layers[:2]] == ["different", "equal bits"]
    assert fewer.layers[0].note.startswith("60 rows in A, 59 in B")
    with pytest.raises(ValueError, match=r"b\['h.0'\]: wanted n = 60 rows .*, got 59"):
        judged(a, {name: layer[1:] for name, layer in a.items()})


def test_a_shift_is_found_beside_a_fault(a):
    """Layers after the fault are others, too; the embeddings are missing."""
    names = list(a)
    b = {f"x.{i}": a[name] for i, name in enumerate(names[1:])}
    b |= {name: torch.randn(N, P) for name in list(b)[1:]}
    result = judged(a, b)
    assert f"{names[1]!r} of A is 'x.0' of B" in result.message
    found = [(layer.name, layer.verdict) for layer in result.layers[:3]]
    assert found == [(names[0], "missing"), (names[1], "equal bits"), (names[2], "different")]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"b": {}}, TypeError, "b: wanted a dictionary of layers, got none"),
        ({"a": [1]}, TypeError, "a: wanted a dictionary of layers, got list"),
        ({"noise": {"x": {}}}, TypeError, r"noise\['x'\]: wanted a dictionary"),
        ({"noise": {"x": {"1": 0}}}, ValueError, r"noise\['x'\]: wanted the layer 'h.0' of a"),
        ({"limit": 0}, ValueError, "limit: wanted a positive number, got 0"),
        ({"b": {"h.0": np.ones((60, 16), int)}}, TypeError, r"b\['h.0'\]: wanted a floating"),
    ],
)
def test_errors(a, change, error, message):
    given = {"a": a, "b": noisy(a, 3), "noise": {}, **change}
    with pytest.raises(error, match=message):
        judge_alike(**given)


def test_layers_of_a_have_to_be_finite(a):
    broken = {**a, "h.0": a["h.0"].clone()}
    broken["h.0"][0, 0] = torch.inf
    with pytest.raises(ValueError, match=r"a\['h.0'\]: wanted finite values, got 1 NaN or inf"):
        judge_alike(broken, a)
    with pytest.raises(ValueError, match=r"noise\['x'\]\['h.0'\]: wanted finite values"):
        judge_alike(a, noisy(a, 3), {"x": broken})


def test_allow_is_checked(a):
    with pytest.raises(ValueError, match="allow: wanted 'scaled', 'permuted', 'rotated' or None"):
        judged(a, a).first("different")
