"""rsatoolbox: correlations of dissimilarity matrices, and noise ceilings."""

import numpy as np

from outside.plugin import Unmapped, replace
from simcore import Rdm, rsa_grid
from simcore.stats import noise_ceiling


def _rdms(given):
    vectors = np.atleast_2d(given if isinstance(given, np.ndarray) else given.get_vectors())
    if np.isnan(vectors).any():
        raise Unmapped  # pairs of examples that were not measured
    return [Rdm(vector) for vector in vectors]


@replace("rsatoolbox.rdm.compare:compare_correlation")
def compare_correlation(original, rdm1, rdm2):
    return rsa_grid(_rdms(rdm1), _rdms(rdm2))


@replace("rsatoolbox.rdm.compare:compare_spearman")
def compare_spearman(original, rdm1, rdm2):
    return rsa_grid(_rdms(rdm1), _rdms(rdm2), correlation="spearman")


@replace(
    "rsatoolbox.inference.noise_ceiling:boot_noise_ceiling",
    "rsatoolbox.inference:boot_noise_ceiling",
)
def boot_noise_ceiling(original, rdms, method="cosine", rdm_descriptor="index"):
    correlation = {"corr": "pearson", "spearman": "spearman"}.get(method)
    if correlation is None or rdm_descriptor != "index":
        raise Unmapped
    bounds = noise_ceiling(_rdms(rdms), correlation=correlation)
    return bounds.lower.mean(), bounds.upper.mean()
