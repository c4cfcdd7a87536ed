"""The record of `simcore/imd.py`."""

from math import inf

from .record import Measure

RECORDS = (
    Measure(
        name="imd",
        function="imd_grid",
        label="IMD",
        summary="distance of the heat traces of the layers' graphs of neighbours",
        page="imd",
        job="imd13",
        highest=inf,  # exp(-4), far above what layers reach: colours begin at the largest found
        distance=True,
        paired=False,
        operators=("nearest_rows",),
        invariant=("translation", "isotropic scaling", "orthogonal map", "permutation of rows"),
        undefined="variance",
    ),
)
