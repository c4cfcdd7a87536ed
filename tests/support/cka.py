"""Inputs, expected values and checks of CKA that several files of tests share."""

import functools

import torch

from simcore import reference
from support import naive, tolerance
from support.cases import CASES, ESTIMATORS, MINIMUM_N, Case, exact, layers

X_CASE = Case(7, offset=1.0, widths=(3, 1, 2))
Y_CASE = Case(7, widths=(2, 4))
# Below this n an unbiased self-HSIC is a small difference of large sums: the absolute promise is
# about CKA of samples that can be normalised, the relative tolerance holds for all.
WELL_CONDITIONED_N = {"biased": 2, "unbiased": 31}


def fitting(estimator):
    return [case for case in CASES if case.n >= MINIMUM_N[estimator]]


ESTIMATED = [(estimator, case) for estimator in ESTIMATORS for case in fitting(estimator)]


@functools.cache
def expected(case, dtype, kernel, estimator):
    """Return the results of the twin and of the naive implementation for one input, cached."""
    x = layers(case, dtype)
    options = {"kernel": kernel, "estimator": estimator}
    return reference.cka_grid(exact(x), **options), naive.cka_grid(x, **options)


def check_cka(got, want, roughly, dtype, *, absolute):
    assert got.dtype == torch.float64
    tolerance.assert_close(got, want, dtype, roughly)
    if dtype == torch.float32 and absolute:
        tolerance.assert_float32_cka(got, want)


def leaves(case, dtype=torch.float64, seed=0):
    return [layer.requires_grad_() for layer in layers(case, dtype, seed=seed)]


def as_function(grid, split, **options):
    """Return the grid as a function of separate tensors, because gradcheck needs one."""
    if split is None:
        return lambda *x: grid(list(x), **options)
    return lambda *xy: grid(list(xy[:split]), list(xy[split:]), **options)
