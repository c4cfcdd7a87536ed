"""Measures of `compare_layers` with their options, their statistics, and how they are bounded."""

from functools import partial

import matplotlib
import pytest
import torch
from matplotlib import pyplot

import simcore
from simcore import compare_layers, stats

matplotlib.use("agg")


def sides(n=40):
    generator = torch.Generator().manual_seed(0)
    x = {name: torch.randn(n, 4, generator=generator) for name in ("first", "second")}
    y = {name: layer + torch.randn(n, 4, generator=generator) for name, layer in x.items()}
    return x, y


def share(X, Y, *, confidence, groups=1.0):
    return simcore.cka_grid(X, Y) * confidence * groups


@pytest.mark.parametrize(
    ("measure", "function", "options"),
    [
        ("hsic", simcore.hsic_grid, {"method": "gram"}),
        (simcore.cka_grid, simcore.cka_grid, {"method": "gram"}),
        (share, share, {"confidence": 0.5, "groups": 3.0}),
    ],
)
def test_options_of_a_measure_are_not_options_of_its_statistics(measure, function, options):
    x, y = sides()
    result = compare_layers(x, y, measure=measure, bootstrap=9, permutations=9, **options)
    fixed = partial(function, **options)
    interval = stats.bootstrap_ci(x, y, measure=fixed, method="half", resamples=9)
    test = stats.permutation_test(x, y, measure=fixed, permutations=9)
    assert torch.equal(result.values, interval.observed)
    assert torch.equal(result.low, interval.low)
    assert torch.equal(result.high, interval.high)
    assert torch.equal(result.pvalue, test.pvalue)


def test_a_distance_whose_options_are_fixed_is_a_distance():
    x, y = sides()
    fixed = partial(partial(simcore.procrustes_grid, form="similarity"), form="distance")
    test = stats.permutation_test(x, y, measure=fixed, permutations=99)
    assert test.pvalue.diagonal().tolist() == [0.01, 0.01]
    by_option = compare_layers(
        x, y, measure=simcore.procrustes_grid, permutations=99, form="distance"
    )
    assert torch.equal(by_option.pvalue, test.pvalue)
    with pytest.raises(ValueError, match="wanted a measure that compares rows, got 'imd'"):
        stats.permutation_test(x, y, measure=partial(simcore.imd_grid, seed=1))


def test_a_function_named_cka_is_not_streamed_as_cka():
    def cka(X, Y):
        return torch.zeros(len(X), len(X if Y is None else Y))

    model = torch.nn.Sequential(torch.nn.Linear(4, 3)).eval()
    with pytest.raises(ValueError, match=r"measure: wanted 'cka' .* streaming=True, got 'cka'"):
        simcore.compare(model, None, [torch.randn(9, 4)], "*", measure=cka, streaming=True)


@pytest.mark.parametrize(
    ("measure", "options", "message"),
    [
        (simcore.knn_grid, {"metric": "cosin"}, "got 'cosin'"),
        (partial(simcore.cka_grid, estimator="unbaised"), {}, "got 'unbaised'"),
    ],
)
def test_values_of_every_grid_are_checked_before_the_first_batch(measure, options, message):
    def loader():
        pytest.fail("a batch was read")
        yield

    model = torch.nn.Sequential(torch.nn.Linear(4, 3)).eval()
    with pytest.raises(ValueError, match=message):
        simcore.compare(model, None, loader(), "*", measure=measure, **options)


def test_a_partial_has_the_name_of_its_function():
    x, _ = sides()
    unbiased = partial(simcore.cka_grid, estimator="unbiased")
    assert compare_layers(x, measure=unbiased).measure == "cka_grid (unbiased)"


@pytest.mark.parametrize("measure", ["svcca", "hsic", simcore.knn_grid])
def test_the_bound_reaches_the_grid_and_the_statistics(measure, monkeypatch):
    x, y = sides()
    with pytest.raises(ValueError, match=r"^max_memory: wanted (at least|more than) "):
        compare_layers(x, y, measure=measure, max_memory=1)
    bounds = []
    for name in ("bootstrap_ci", "permutation_test"):
        original = getattr(stats, name)
        monkeypatch.setattr(
            f"simcore.recording.named_grid.{name}",
            lambda *sides, original=original, **options: (
                bounds.append(options["max_memory"]) or original(*sides, **options)
            ),
        )
    compare_layers(x, y, measure=measure, max_memory=2**24, bootstrap=3, permutations=3)
    assert bounds == [2**24] * 2
    with pytest.raises(ValueError, match=r"^max_memory: wanted a positive number"):
        compare_layers(x, y, measure=share, confidence=0.5, max_memory=0)


def test_bars_of_the_grid_and_of_the_statistics(capsys):
    x, y = sides()
    compare_layers(x, y, bootstrap=3, permutations=3, progress=True)
    shown = capsys.readouterr().err
    assert all(name in shown for name in ("cka_grid", "bootstrap_ci", "permutation_test"))
    model = torch.nn.Sequential(torch.nn.Linear(4, 3)).eval()
    simcore.compare(model, None, [torch.randn(9, 4)], "*", progress=True)
    assert "cka_grid" in capsys.readouterr().err
    with pytest.raises(TypeError, match="progress: wanted True or False, got 1"):
        compare_layers(x, progress=1)


def test_a_result_of_layers_with_a_graph():
    x, _ = sides()
    layers = {name: layer.requires_grad_() for name, layer in x.items()}
    weight = torch.ones(1, requires_grad=True)
    result = compare_layers(layers, bootstrap=3)
    assert result.to_pandas().shape == (2, 2)
    assert len(result.to_pandas(long=True)) == 4
    pyplot.close(result.plot().figure)
    with_parameters = compare_layers(x, measure=lambda X, Y: (X[0].sum() * weight).expand(2, 2))
    assert not with_parameters.values.requires_grad


@pytest.mark.parametrize("measure", ["imd", simcore.imd_grid])
def test_the_seed_is_that_of_imd(measure, monkeypatch):
    x, y = sides()
    monkeypatch.setattr(simcore.imd, "EXACT_ROWS", 5)  # exact values have no seed
    result = compare_layers(x, y, measure=measure, seed=3, bootstrap=3)
    assert torch.equal(result.values, simcore.imd_grid(x, y, seed=3))
    assert not torch.equal(result.values, simcore.imd_grid(x, y))
    want = stats.bootstrap_ci(
        list(x.values()), list(y.values()), measure=measure, seed=3, resamples=3
    )
    assert torch.equal(want.observed, result.values)
    assert torch.equal(want.high, result.high)
    fixed = compare_layers(x, y, measure=partial(simcore.imd_grid, seed=0), seed=3)
    assert torch.equal(fixed.values, simcore.imd_grid(x, y))


def test_intervals_are_printed_beside_the_values():
    x, _ = sides()
    result = compare_layers(x, bootstrap=9)
    header, names, *lines = str(result).splitlines()
    assert header == "cka (biased), n = 40, 95 % intervals in brackets"
    value, low, high = (float(grid[0, 1]) for grid in (result.values, result.low, result.high))
    assert lines[0].endswith(f" {value:.3f} [{low:.3f}, {high:.3f}]")
    assert len({len(line) for line in (names, *lines)}) == 1
