"""`Comparison`: indexed, printed, drawn and stored; several measures at once."""

from dataclasses import replace
from itertools import combinations_with_replacement
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import pyplot

from simcore import Comparison, basis, compare_layers, measures

matplotlib.use("agg")


@pytest.fixture
def named():
    layers = np.random.default_rng(0).standard_normal((3, 40, 6))
    return dict(zip(("a.0", "a.1", "<b>"), layers, strict=True))


def test_several_measures(named):
    results = compare_layers(named, measure=["cka", "svcca", measures["gulp"]], bootstrap=4)
    assert list(results) == ["cka", "svcca", "gulp"]
    for name, result in results.items():
        alone = compare_layers(named, measure=name, bootstrap=4)
        assert torch.equal(result.values, alone.values)
        assert torch.equal(result.low, alone.low)
    with pytest.raises(ValueError, match="measure: wanted different measures, got"):
        compare_layers(named, measure=["cka", "cka"])
    with pytest.raises(TypeError, match=r"truncation .*of measure 'cka'"):
        compare_layers(named, measure=["svcca", "cka"], truncation=0.9)


OF_BASES = ["cca", "svcca", "pwcca", "linreg", "mixedsim", "gulp"]


@pytest.mark.parametrize("both", [True, False], ids=["Y", "X alone"])
def test_measures_of_one_list_decompose_each_side_once(named, both, monkeypatch):
    calls, decompose = [], basis._decompose
    monkeypatch.setattr(basis, "_decompose", lambda *args: calls.append(args) or decompose(*args))
    # Arrays read backwards are copied for each grid: copies may lie where freed ones lay.
    x = {name: layer[::-1] if name == "a.0" else layer for name, layer in named.items()}
    sides = (x, {"y": np.random.default_rng(1).standard_normal((40, 4))}) if both else (named,)
    results = compare_layers(*sides, measure=OF_BASES)
    many = len(calls)
    for name, result in results.items():
        assert torch.equal(result.values, compare_layers(*sides, measure=name).values)
    if not both:
        assert (many, len(calls) - many) == (1, len(OF_BASES))
    assert basis._SHARED.get() is None


def test_a_pair_by_name_or_place(named):
    result = compare_layers(named)
    assert result["a.0", "<b>"] == result[0, 2] == result["a.0", -1] == result.values[0, 2].item()
    assert np.asarray(result).tolist() == result.values.tolist()
    assert np.asarray(result, dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="avoid copy"):
        np.array(result, dtype=np.float32, copy=False)
    with pytest.raises(KeyError, match=r"columns \(did you mean 'a.0'\?\): .*, got 'a.00'"):
        result["a.1", "a.00"]
    with pytest.raises(IndexError, match="rows: wanted a place below 3, got 3"):
        result[3, 0]
    with pytest.raises(TypeError, match="wanted two layers"):
        result["a.0"]


def test_a_distance_says_so(named):
    similarity, distance = compare_layers(named, measure=["cka", "gulp"]).values()
    assert not similarity.is_distance
    assert str(distance).splitlines()[0] == "gulp (distance: 0 is alike), n = 40"
    pictures = [result.plot().get_images()[0] for result in (similarity, distance)]
    # A layer and itself have the brightest colour in both.
    colours = [p.cmap(p.norm(p.get_array()[0, 0])) for p in pictures]
    assert colours[0] == colours[1]
    pyplot.close("all")


@pytest.mark.parametrize("is_distance", [False, True])
def test_match_is_the_best_of_all_monotone_maps(is_distance):
    rng = np.random.default_rng(0)
    for shape in [(1, 1), (1, 4), (4, 1), (3, 5), (5, 3), (4, 4)] * 5:
        # Integers have ties, and exact sums.
        values = torch.from_numpy(rng.integers(-9, 9, shape).astype(np.float64))
        rows, columns = (
            [f"{side}{i}" for i in range(n)] for side, n in zip("xy", shape, strict=True)
        )
        match = Comparison(values, rows, columns, "any", 9, is_distance=is_distance).match()
        assert list(match) == rows
        places = tuple(columns.index(name) for name in match.values())
        maps = list(combinations_with_replacement(range(shape[1]), shape[0]))
        totals = [values[range(shape[0]), places].sum().item() for places in maps]
        assert places in maps
        assert totals[maps.index(places)] == (min if is_distance else max)(totals)


def test_matches_say_how_many_resamples_agree(tmp_path):
    rng = np.random.default_rng(0)
    a, b, c = rng.standard_normal((3, 60, 8))
    rows = {"a": a, "bc": b + c, "none": rng.standard_normal((60, 8))}
    result = compare_layers(rows, {"a": a, "b": b, "c": c}, bootstrap=40, estimator="unbiased")
    match = result.match()
    names = list(rows)
    of_draws = [replace(result, values=draw, draws=None).match() for draw in result.draws]
    assert match.stability == {
        name: np.mean([found[name] == match[name] for found in of_draws]) for name in names
    }
    assert match.stability["a"] == 1 > min(match.stability.values())
    assert compare_layers(rows).match().stability is None
    result.save(tmp_path / "x.npz")
    assert Comparison.load(tmp_path / "x.npz").match().stability == match.stability
    empty = result.draws.clone()
    empty[1:, 0, 0] = float("nan")
    assert set(replace(result, draws=empty).match().stability.values()) <= {0.0, 1.0}
    assert replace(result, draws=empty[1:]).match().stability is None


def test_match_refuses_what_has_no_best_map(named):
    result = compare_layers(named)
    assert result.match() == {name: name for name in named}
    values = result.values.clone()
    values[1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"match: wanted finite values, got nan at 'a\.1', '<b>'"):
        replace(result, values=values).match()
    with pytest.raises(ValueError, match="match: wanted rows of different names, got a, a, b"):
        replace(result, rows=("a", "a", "b")).match()


def test_html(named):
    similarity, distance = compare_layers(named, measure=["cka", "gulp"]).values()
    for result in (similarity, distance):
        table = ElementTree.fromstring(result._repr_html_())
        cells = list(table.iter("td"))
        assert [cell.text for cell in cells] == [f"{v:.3f}" for v in result.values.flatten()]
        assert "rgb(31, 78, 121)" in cells[0].get("style")
        assert [head.text for head in table.iter("th")][3] == "<b>"
    nothing = replace(similarity, values=torch.full((3, 3), torch.nan))
    assert "background" not in nothing._repr_html_()


def test_a_result_is_stored(named, tmp_path):
    result = compare_layers(named, measure="gulp", bootstrap=4, permutations=5)
    result.save(tmp_path / "result")
    read = Comparison.load(tmp_path / "result")
    assert str(read) == str(result)
    for name in ("values", "low", "high", "pvalue", "calibrated"):
        assert torch.equal(getattr(read, name), getattr(result, name))
    assert (read.rows, read.measure, read.n, read.is_distance) == (
        *(result.rows, result.measure, result.n),
        True,
    )
    np.savez(tmp_path / "other.npz", values=np.zeros(2))
    (tmp_path / "text").write_text("no archive")
    whole = (tmp_path / "result").read_bytes()
    (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
    for name in ("other.npz", "text", "half"):
        with pytest.raises(ValueError, match=r"path: wanted a file of Comparison\.save, got .*"):
            Comparison.load(tmp_path / name)
