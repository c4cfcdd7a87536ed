"""Inputs that the tests of statistics share: layers, and the permutations that a seed gives."""

import torch

from simcore.stats.draws import permutations
from simcore.stats.resampled_grid import generator
from support.cases import ESTIMATORS, KERNELS, Case, layers

MEASURED = [(kernel, estimator) for kernel in KERNELS for estimator in ESTIMATORS]


def drawn(seed, n, count):
    """Return the permutations that a seed gives, the identity first."""
    return permutations(generator(seed), n, count, None)


def pair(case, dtype=torch.float64):
    """Return layers to compare, of two widths each."""
    return layers(case, dtype), layers(Case(case.n, case.offset, widths=(12, 3)), dtype, seed=1)
