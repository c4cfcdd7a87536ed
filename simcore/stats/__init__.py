"""Permutation tests and bootstrap intervals of the similarity of all layer pairs.

moments.py         moments of the permutation distribution, without drawing
permutation.py     `permutation_test`
bootstrap.py       `bootstrap_ci`
draws.py           which rows each draw takes; groups of rows that belong together
few_rows.py        resamples with too few rows for measures that decompose layers
grams.py           Gram matrices of all layers in memory, for CKA
matrices.py        matrices over the examples that were made elsewhere, as layers
ceiling.py         `noise_ceiling` of the dissimilarities of several subjects
resampled_grid.py  every other measure, computed anew for each draw
"""

from simcore.stats.bootstrap import BootstrapInterval, bootstrap_ci
from simcore.stats.ceiling import NoiseCeiling, noise_ceiling
from simcore.stats.permutation import PermutationTest, permutation_test

__all__ = [
    "BootstrapInterval",
    "NoiseCeiling",
    "PermutationTest",
    "bootstrap_ci",
    "noise_ceiling",
    "permutation_test",
]
