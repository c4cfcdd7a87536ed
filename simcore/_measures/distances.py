"""The records of `simcore/distances.py`."""

from math import inf

from .record import Measure, Variant

RECORDS = (
    Measure(
        name="distance-correlation",
        function="distance_correlation_grid",
        label="distance correlation",
        summary="correlation of the distances between rows",
        page="distance-correlation",
        job="distance_correlation13",
        root=True,
        operators=("hsic_terms", "gram_terms"),
        invariant=("translation", "isotropic scaling", "orthogonal map"),
        undefined="variance",
    ),
    Measure(
        name="rsm-difference",
        function="rsm_difference_grid",
        label="RSM difference",
        summary="norm of the difference of the distances between rows",
        page="rsm-difference",
        job="rsm_difference13",
        options={"norm": "frobenius"},
        highest=inf,
        distance=True,
        operators=("hsic_terms", "gram_terms"),
        invariant=("translation", "orthogonal map"),
        degree=1,
        variants=(
            Variant("RSM difference (Frobenius)", {"norm": "frobenius"}, "rsm_difference13"),
            Variant("RSM difference (spectral)", {"norm": "spectral"}, "rsm_spectral13", ()),
        ),
    ),
)
