"""dcor: distance correlation."""

import numpy as np

from outside.adapters import one
from outside.plugin import Unmapped, replace
from simcore import distance_correlation_grid


def _layer(values):
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fi":
        raise Unmapped  # arrays of other libraries, and of fractions
    values = values.astype(np.float64)
    return values[:, None] if values.ndim == 1 else values


@replace("dcor:distance_correlation")
def distance_correlation(original, x, y, *, exponent=1, **how):
    if exponent != 1:
        raise Unmapped
    return one(distance_correlation_grid([_layer(x)], [_layer(y)]))


@replace("dcor:distance_correlation_sqr")
def distance_correlation_sqr(original, x, y, *, exponent=1, **how):
    return distance_correlation(original, x, y, exponent=exponent, **how) ** 2
