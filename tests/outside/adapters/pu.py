"""platonic-universe: its measures of two arrays."""

import numpy as np

from outside.adapters import one
from outside.plugin import Unmapped, replace
from simcore import (
    cka_grid,
    knn_grid,
    linreg_grid,
    procrustes_grid,
    pwcca_grid,
    rsa_grid,
    svcca_grid,
)


def _pair(Z1, Z2):
    return [np.asarray(Z1, np.float64)], [np.asarray(Z2, np.float64)]


@replace("pu.metrics.kernel:cka", "pu.metrics:cka")
def cka(original, Z1, Z2, kernel="linear", gamma=None):
    if kernel not in ("linear", "rbf") or gamma is not None:
        raise Unmapped
    return one(cka_grid(*_pair(Z1, Z2), kernel=kernel, estimator="biased"))


@replace("pu.metrics.geometric:procrustes", "pu.metrics:procrustes")
def procrustes(original, Z1, Z2):
    return one(procrustes_grid(*_pair(Z1, Z2), form="distance"))


@replace("pu.metrics.cca:svcca", "pu.metrics:svcca")
def svcca(original, Z1, Z2, threshold=0.99):
    return one(svcca_grid(*_pair(Z1, Z2), truncation=threshold))


@replace("pu.metrics.cca:pwcca", "pu.metrics:pwcca")
def pwcca(original, Z1, Z2, threshold=0.99):
    return one(pwcca_grid(*_pair(Z1, Z2), truncation=threshold))


@replace("pu.metrics.neighbors:mknn", "pu.metrics:mknn")
def mknn(original, Z1, Z2, k=10, truncate_percentile=100):
    if truncate_percentile != 100:
        raise Unmapped
    return one(knn_grid(*_pair(Z1, Z2), k=k, measure="mutual"))


@replace("pu.metrics.neighbors:jaccard", "pu.metrics:jaccard")
def jaccard(original, Z1, Z2, k=10, **how):
    return one(knn_grid(*_pair(Z1, Z2), k=k, measure="jaccard"))


@replace("pu.metrics.neighbors:rsa", "pu.metrics:rsa")
def rsa(original, Z1, Z2, method="spearman", metric="cosine"):
    if metric != "correlation":
        raise Unmapped
    return one(rsa_grid(*_pair(Z1, Z2), correlation=method))


@replace("pu.metrics.regression:linear_r2", "pu.metrics:linear_r2")
def linear_r2(original, Z1, Z2, alpha=1.0, cv=None):
    """Return the share of the second layer's variance, without the small ridge of the peer."""
    if alpha != 1 or cv is not None:
        raise Unmapped
    return one(linreg_grid(*_pair(Z2, Z1)))
