"""What all statistics promise: types, undefined layers, messages, memory."""

import functools
import re

import numpy as np
import pytest
import torch

from simcore import cka_grid, stats
from support import tolerance
from support.cases import KERNELS, Case, exact, layers
from support.forks import in_fork

MB = 2**20


def test_numpy_in_numpy_out():
    x = exact(layers(Case(33)))
    before = [layer.copy() for layer in x]
    test = stats.permutation_test(x, permutations=3, return_null=True)
    moments = stats.permutation_test(x, method="moments")
    interval = stats.bootstrap_ci(x, resamples=3)
    for values in (test.null, test.pvalue, moments.null_skewness, interval.low, interval.observed):
        assert isinstance(values, np.ndarray)
        assert values.dtype == np.float64
    for layer, copy in zip(x, before, strict=True):
        np.testing.assert_array_equal(layer, copy)


RUNS = {
    "permutation": functools.partial(stats.permutation_test, permutations=5),
    "moments": functools.partial(stats.permutation_test, method="moments"),
    "bootstrap": functools.partial(stats.bootstrap_ci, resamples=5),
}


@pytest.mark.parametrize(
    ("run", "measure"),
    [*((run, "cka") for run in RUNS), ("permutation", "rsa"), ("bootstrap", "rsa")],
)
def test_layers_may_come_from_a_generator(run, measure):
    x = layers(Case(33, widths=(7, 12)))
    got, want = (RUNS[run](given, measure=measure) for given in ((one for one in x), x))
    assert got.observed.equal(want.observed)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("run", RUNS)
def test_a_constant_layer_is_nan_with_one_warning(run, kernel):
    x = layers(Case(33, widths=(3, 4, 5)))
    x[1] = torch.full_like(x[1], 0.1)
    with pytest.warns(UserWarning, match=r"nan for X\[1\]:") as caught:
        result = RUNS[run](x, kernel=kernel)
    grids = {name: values for name, values in vars(result).items() if values is not None}
    assert len(caught) == 1
    missing = torch.zeros(3, 3, dtype=torch.bool)
    missing[1] = missing[:, 1] = True
    itself = torch.eye(3, dtype=torch.bool)  # takes no part in the best of all pairs
    for name, grid in grids.items():
        assert torch.equal(grid.isnan(), missing | itself if name == "familywise" else missing)


@pytest.mark.parametrize("method", ["permutation", "moments"])
@pytest.mark.parametrize("magnitude", [1e-25, 1e25])
def test_any_magnitude(magnitude, method):
    x = [layer.float() for layer in layers(Case(33, widths=(5, 40)))]
    scaled = [layer * magnitude for layer in x]
    options = {"method": method, "permutations": 5}
    for kernel in KERNELS:
        got = stats.permutation_test(scaled, kernel=kernel, **options)
        want = stats.permutation_test(x, kernel=kernel, **options)
        tolerance.assert_float32_cka(got.null_mean, want.null_mean)
        tolerance.assert_float32_cka(got.observed, want.observed)


def test_progress(capfd):
    x = layers(Case(33))
    stats.permutation_test(x, permutations=3, progress=True)
    stats.permutation_test(x, permutations=3, measure=cka_grid, progress=False)
    assert "permutation_test [" in capfd.readouterr().err
    stats.permutation_test(x, permutations=3, measure=cka_grid, progress=True)
    stats.bootstrap_ci(x, resamples=3, progress=True)
    shown = capfd.readouterr().err
    assert "100%" in shown
    assert "bootstrap_ci [" in shown


BAD = torch.tensor([[1.0, float("nan")], [2.0, 3.0], [4.0, float("inf")], [1.0, 2.0]])
GOOD = BAD.nan_to_num(0.5, posinf=1.0)
ERRORS = {
    "measure": ({"measure": "kca"}, ValueError, "measure: .*'cka'.*'kca'"),
    "measure type": ({"measure": 3}, TypeError, "measure: .*int"),
    "method": ({"method": "exact"}, ValueError, "method: .*'exact'"),
    "permutations": ({"permutations": 0}, ValueError, "permutations: .*0"),
    "permutations type": ({"permutations": 2.5}, TypeError, "permutations: .*2.5"),
    "seed": ({"seed": -1}, ValueError, "seed: .*-1"),
    "option": ({"truncation": 3}, TypeError, "truncation.*: wanted .*bandwidth"),
    "kernel": ({"kernel": "poly"}, ValueError, "kernel: .*'poly'"),
    "estimator": ({"estimator": "jack"}, ValueError, "estimator: .*'jack'"),
    "max_memory": ({"max_memory": 10}, ValueError, "max_memory: .*10; .*moments"),
    "max_memory type": ({"max_memory": -1}, ValueError, "max_memory: .*-1"),
    "moments of others": (
        {"method": "moments", "measure": "svcca"},
        ValueError,
        "measure: .*'cka'.*'svcca'",
    ),
    "moments of a function": (
        {"method": "moments", "measure": cka_grid},
        ValueError,
        "measure: wanted 'cka'",
    ),
    "moments drawn": ({"method": "moments", "return_null": True}, ValueError, "return_null: "),
    "nan": ({"X": [GOOD, BAD]}, ValueError, r"X\[1\]: .*2 NaN or infinite of 8"),
    "nan in Y": ({"Y": [BAD]}, ValueError, r"Y\[0\]: .*2 NaN or infinite of 8"),
    "nan by moments": ({"X": [BAD], "method": "moments"}, ValueError, r"X\[0\]: .*2 NaN"),
    "nan of a function": ({"X": [BAD], "measure": cka_grid}, ValueError, r"X\[0\]: .*2 NaN"),
    "rows": ({"Y": [GOOD[:3]]}, ValueError, r"Y\[0\]: wanted n = 4"),
    "grid": (
        {"measure": lambda x, y: torch.zeros(1)},
        ValueError,
        r"measure: wanted a grid \(1, 1\), got shape \(1,\)",
    ),
    "unbiased": ({"X": [GOOD[:3]], "estimator": "unbiased"}, ValueError, "at least 4 rows"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_message(name):
    arguments, error, message = ERRORS[name]
    with pytest.raises(error, match=message):
        stats.permutation_test(**{"X": [GOOD], **arguments})


BOOTSTRAP_ERRORS = {
    "confidence": ({"confidence": 95}, ValueError, "confidence: .*95"),
    "resamples": ({"resamples": 0}, ValueError, "resamples: .*0"),
    "seed": ({"seed": 0.5}, TypeError, "seed: .*0.5"),
    "max_memory": ({"max_memory": 10}, ValueError, "max_memory: .*10; pass fewer layers"),
    "nan": ({"X": [BAD]}, ValueError, r"X\[0\]: .*2 NaN"),
}


@pytest.mark.parametrize("name", BOOTSTRAP_ERRORS)
def test_bootstrap_message(name):
    arguments, error, message = BOOTSTRAP_ERRORS[name]
    with pytest.raises(error, match=message):
        stats.bootstrap_ci(**{"X": [GOOD], **arguments})


PEAKS = {
    "permutation": "stats.permutation_test(x, permutations=2, max_memory=limit)",
    "moments": "stats.permutation_test(x, method='moments', kernel='rbf', max_memory=limit)",
    "bootstrap": "stats.bootstrap_ci(x, resamples=2, max_memory=limit)",
    "bases": "stats.permutation_test(z, z, measure='svcca', permutations=1, max_memory=limit)",
    "copies": "stats.bootstrap_ci(z, z, measure='neuronsim', resamples=2, max_memory=limit)",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PEAKS)
def test_max_memory_is_obeyed(name):
    """Gram matrices of 30 layers are 120 MB; bases, and copies, of z on either side 38."""
    program = f"""
import torch
from bench.peak import peak_during
from simcore import stats
torch.set_num_threads(2)
def test(n):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, n, 20, generator=generator)
    z = torch.randn(40, n, 128, generator=generator)
    limit = 100 * 2**20
    return lambda: {PEAKS[name]}
test(50)()
print(peak_during(test(1000)))
"""
    assert int(in_fork(program)) <= 100 * MB + 8 * MB


def test_names_are_those_of_the_docstring():
    described = stats.permutation_test.__doc__.split("measure :")[1].split("permutations :")[0]
    names = re.findall(r'"([\w-]+)"', described)
    assert len(names) > 5
    assert set(names) <= set(stats.resampled_grid.GRIDS)
