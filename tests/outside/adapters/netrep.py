"""netrep: angles of shape metrics, with rotations and with all linear maps."""

import numpy as np

from outside.adapters import one
from outside.plugin import Unmapped, replace
from simcore import cca_grid, matching_grid, procrustes_grid


@replace("netrep.metrics.linear:LinearMetric.score")
def linear_score(original, metric, X, Y):
    """Return the angle between layers: of Procrustes for alpha 1, of mean CCA for alpha 0."""
    if metric.score_method != "angular" or not metric.center_columns or X.shape != Y.shape:
        raise Unmapped
    if metric.alpha == 1:
        return one(procrustes_grid([X], [Y], form="angular"))
    if metric.alpha == 0:
        return np.arccos(min(one(cca_grid([X], [Y])), 1.0))
    raise Unmapped


@replace("netrep.metrics.perm:PermutationMetric.score")
def permutation_score(original, metric, X, Y):
    """Return the distance, or angle, of layers whose neurons are permuted."""
    if metric.center_columns:
        raise Unmapped
    score = {"euclidean": "distance", "angular": "angular"}[metric.score_method]
    return one(matching_grid([X], [Y], matching="one-to-one", score=score))
