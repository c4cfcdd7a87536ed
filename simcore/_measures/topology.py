"""The record of `simcore/topology.py`."""

from math import inf

from .record import Measure

RECORDS = (
    Measure(
        name="rtd",
        function="rtd_grid",
        label="RTD",
        summary="differences in topology (needs the package gudhi)",
        page="rtd",
        job="rtd2",
        options={"rows": 500, "draws": 10},
        highest=inf,
        distance=True,
        invariant=("translation", "isotropic scaling", "orthogonal map"),
        undefined="variance",
        least_rows=3,
    ),
)
