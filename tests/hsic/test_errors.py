"""Every error message once: it names the argument, the layer, what was wanted and what came."""

import math
import re

import pytest
import torch

from simcore import MinibatchCKA, cka_grid, hsic_grid, plan_cka
from support import tolerance
from support.bad_inputs import ENTRIES, LAYERS, X, Y, assert_refused, rows, spoiled, with_layer
from support.cases import DTYPES, HALVES, noted

# name: (positional arguments, options, error, every word its message has to hold)
CASES = {
    **LAYERS,
    **ENTRIES,
    "n below biased": (([rows(1)],), {}, ValueError, "X 2 1 biased"),
    "n below unbiased": (([rows(3)],), {"estimator": "unbiased"}, ValueError, "X 4 3 unbiased"),
    "kernel": ((X,), {"kernel": "poly"}, ValueError, "kernel linear rbf poly"),
    "estimator": ((X,), {"estimator": "debiased"}, ValueError, "estimator biased debiased"),
    "method": ((X,), {"method": "fast"}, ValueError, "method auto gram feature fast"),
    "precision": ((X,), {"precision": "low"}, ValueError, "precision highest high medium low"),
    "bandwidth zero": ((X,), {"kernel": "rbf", "bandwidth": 0.0}, ValueError, "bandwidth 0"),
    "bandwidth negative": ((X,), {"kernel": "rbf", "bandwidth": -2.0}, ValueError, "bandwidth 2"),
    "bandwidth nan": ((X,), {"kernel": "rbf", "bandwidth": math.nan}, ValueError, "bandwidth nan"),
    "rbf by features": ((X,), {"kernel": "rbf", "method": "feature"}, ValueError, "method rbf"),
}


@pytest.mark.parametrize("function", [cka_grid, hsic_grid])
def test_messages(function):
    for name, (*given, words) in CASES.items():
        with noted(name):
            assert_refused(function, *given, words)


def test_plan_refuses_what_the_grid_refuses():
    """A plan looks at shapes only, so it cannot see a NaN; everything else it refuses alike."""
    for name in set(CASES) - set(ENTRIES):
        arguments, options, error, _ = CASES[name]
        with noted(name):
            with pytest.raises(error) as from_grid:
                cka_grid(*arguments, **options)
            with pytest.raises(error, match=re.escape(str(from_grid.value))):
                plan_cka(*arguments, **options)


@pytest.mark.parametrize("count", [1, 2, 37 * 6])
@pytest.mark.parametrize("dtype", DTYPES + HALVES, ids=str)
def test_bad_entries_are_counted(dtype, count):
    bad = spoiled(X[1].to(dtype), math.nan, count)
    with pytest.raises(ValueError, match=rf"X.*\b1\b.*\b{count}\b"):
        cka_grid(with_layer([x.to(dtype) for x in X], 1, bad))


def test_nan_and_infinity_together_are_all_counted():
    bad = spoiled(spoiled(X[1], math.nan, 5), math.inf, 2)  # two inf, three nan left
    with pytest.raises(ValueError, match=r"X.*\b1\b") as caught:
        cka_grid(with_layer(X, 1, bad))
    numbers = {int(number) for number in re.findall(r"\d+", str(caught.value))}
    assert 5 in numbers or {2, 3} <= numbers


def test_a_bad_last_column_of_a_strided_layer_is_seen():
    wide = torch.cat([X[0], torch.full((37, 1), math.nan, dtype=torch.float64)], dim=1)
    assert cka_grid([wide[:, :5]]).isfinite().all()
    with pytest.raises(ValueError, match=r"X.*\b37\b"):
        cka_grid([wide[:, 1:]])


def test_finite_values_whose_squares_overflow_give_no_wrong_number():
    huge = [x.to(torch.float32) * 1e25 for x in X]
    got = cka_grid(huge)
    want = cka_grid([x.to(torch.float32) for x in X])
    assert bool((got.isnan() | torch.isclose(got, want, atol=tolerance.CHANGE)).all())


def test_options_are_keyword_only():
    for function in (cka_grid, hsic_grid, plan_cka):
        with pytest.raises(TypeError, match="positional"):
            function(X, Y, "linear")
        with pytest.raises(TypeError, match="kernal"):
            function(X, kernal="linear")


MINIBATCH = {
    "too few rows": (([rows(3)] * 2,), ValueError, "X_batch 3 4"),
    "too few rows in Y": ((X[:2], [rows(3)] * 2), ValueError, "Y_batch 3"),
    "layers of X": ((X,), ValueError, "X_batch 1 2"),
    "layers of Y": ((X[:2], Y[:1]), ValueError, "Y_batch 0 1"),
    "rows differ": ((with_layer(X[:2], 1, rows(41)),), ValueError, "X_batch 1 37 41"),
    "rows of Y differ": ((X[:2], with_layer(Y, 1, rows(41))), ValueError, "Y_batch 1 37 41"),
    "NaN": ((with_layer(X[:2], 1, spoiled(X[1], math.nan, 3)),), ValueError, "X_batch 1 3"),
    "integers": (
        (with_layer(X[:2], 1, rows(37, dtype=torch.int64)),),
        TypeError,
        "X_batch 1 int64",
    ),
}


def test_minibatch_messages():
    for name, (arguments, error, words) in MINIBATCH.items():
        metric = MinibatchCKA()
        metric.update(X[:2], Y[:2] if len(arguments) == 2 else None)
        with noted(name):
            assert_refused(metric.update, arguments, {}, error, words)
