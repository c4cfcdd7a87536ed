"""The records of `simcore/matching.py`."""

from math import inf, pi
from typing import Any

from .record import Measure

_MATCHED: dict[str, Any] = {
    "function": "matching_grid",
    "page": "matching",
    "operators": ("match_neurons",),
}
_CORRELATION: dict[str, Any] = {
    **_MATCHED,
    "lowest": -1.0,
    "invariant": ("translation", "scaling of neurons", "permutation of neurons"),
    "undefined": "variance",
}

RECORDS = (
    Measure(
        name="match-soft",
        label="soft correlation match",
        summary="each neuron with its best neuron of the other layer, signed, both directions",
        job="soft_match13",
        fixed={"matching": "best", "score": "correlation"},
        **_CORRELATION,
    ),
    Measure(
        name="match-hard",
        label="hard correlation match",
        summary="mean correlation of neurons that are assigned one to one",
        job="hard_match13",
        fixed={"matching": "one-to-one", "score": "correlation"},
        **_CORRELATION,
    ),
    Measure(
        name="match-transport",
        label="soft matching",
        summary="correlation of neurons under the optimal transport plan (needs the package POT)",
        job="soft_matching13",
        fixed={"matching": "transport", "score": "correlation"},
        **_CORRELATION,
    ),
    Measure(
        name="transport-distance",
        label="soft-matching distance",
        summary="the same as a distance of neurons that are not centred",
        job="soft_matching_distance13",
        fixed={"matching": "transport", "score": "distance"},
        highest=inf,
        distance=True,
        invariant=("permutation of neurons",),
        degree=1,
        **_MATCHED,
    ),
    Measure(
        name="permutation-procrustes",
        label="permutation Procrustes",
        summary="distance after the best permutation of neurons",
        job="permutation_procrustes13",
        fixed={"matching": "one-to-one", "score": "distance"},
        highest=inf,
        distance=True,
        invariant=("permutation of neurons",),
        degree=1,
        **_MATCHED,
    ),
    Measure(
        name="permutation-angular",
        label="permutation angle",
        summary="angle after the best permutation of neurons",
        job="permutation_angular13",
        fixed={"matching": "one-to-one", "score": "angular"},
        highest=pi,
        distance=True,
        invariant=("isotropic scaling", "permutation of neurons"),
        undefined="zeros",
        **_MATCHED,
    ),
    Measure(
        name="aligned-cosine",
        function="aligned_cosine_grid",
        label="aligned cosine",
        summary="mean cosine of the rows after the best rotation",
        page="aligned-cosine",
        job="aligned_cosine13",
        lowest=-1.0,
        operators=("aligned_cosines",),
        invariant=("isotropic scaling", "orthogonal map"),
        undefined="zeros",
    ),
)
