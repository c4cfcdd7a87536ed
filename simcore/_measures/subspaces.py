"""The records of `simcore/subspaces.py`."""

from math import inf

from .record import BASES, Measure, Variant

RECORDS = (
    Measure(
        name="gulp",
        function="gulp_grid",
        label="GULP",
        summary="how far the predictions of ridge regressions on X and on Y are apart",
        page="gulp",
        job="gulp13",
        options={"ridge": 0.0},
        highest=inf,
        distance=True,
        precomputed=BASES,
        operators=("hsic_terms", "gram_terms"),
        invariant=("translation", "invertible linear map"),
        undefined="variance",
        variants=(
            Variant("GULP (ridge 0)", {"ridge": 0.0}),
            Variant("GULP (ridge 0.01)", {"ridge": 0.01}, "gulp13", ("hsic_terms", "gram_terms")),
        ),
    ),
    Measure(
        name="eigenspace-overlap",
        function="eigenspace_overlap_grid",
        label="eigenspace overlap",
        summary="overlap of the spaces that the columns span",
        page="eigenspace-overlap",
        job="eigenspace_overlap13",
        operators=("hsic_terms", "gram_terms"),
        invariant=("invertible linear map",),
        undefined="zeros",
    ),
)
