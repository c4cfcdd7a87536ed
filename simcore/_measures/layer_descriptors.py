"""The records of `simcore/layer_descriptors.py`."""

from math import inf
from typing import Any

from .record import Measure

_DESCRIPTOR: dict[str, Any] = {
    "function": "descriptor_grid",
    "page": "descriptors",
    "distance": True,
    "paired": False,
}

RECORDS = (
    Measure(
        name="magnitude",
        label="magnitude difference",
        summary="difference of the lengths of the mean rows",
        job="magnitude13",
        fixed={"descriptor": "magnitude"},
        highest=inf,
        operators=("mean_rows",),
        invariant=("orthogonal map", "permutation of rows"),
        degree=1,
        **_DESCRIPTOR,
    ),
    Measure(
        name="concentricity",
        label="concentricity difference",
        summary="difference of the mean cosines to the mean row",
        job="concentricity13",
        fixed={"descriptor": "concentricity"},
        highest=2.0,
        operators=("mean_rows",),
        invariant=("isotropic scaling", "orthogonal map", "permutation of rows"),
        undefined="zeros",
        **_DESCRIPTOR,
    ),
    Measure(
        name="uniformity",
        label="uniformity difference",
        summary="difference of the logarithms of the mean of exp(-2 distance²)",
        job="uniformity13",
        fixed={"descriptor": "uniformity"},
        highest=inf,
        operators=("uniformity",),
        invariant=("translation", "orthogonal map", "permutation of rows"),
        degree=None,
        **_DESCRIPTOR,
    ),
)
