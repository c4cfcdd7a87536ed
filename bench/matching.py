"""The table of matched neurons and rotated layers: ours, bare products, the published code.

    python -m bench.matching --job hard_match13 --repeats 5
    python -m bench.matching --list

Data: ``X_l = X_(l-1) + 0.5 noise``, float32, two threads. "published, 1 row" computes the pairs of
the first layer with all others: times the number of layers it is what a grid takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from bench import harness, measure_formulas
from bench import matching_formulas as formulas
from bench.neighbours import PUBLISHED, Contestant, one_row

BARE = "bare products"  # one for every unordered pair; no measure
ASSIGNED = "products and assignments"  # by torch and scipy, of every unordered pair; no measure
MEASURES: dict[str, tuple[str, dict[str, Any]]] = {
    "hard": ("matching_grid", {}),
    "soft": ("matching_grid", {"matching": "best"}),
    "permutation": ("matching_grid", {"score": "distance"}),
    "angular": ("matching_grid", {"score": "angular"}),
    "transport": ("matching_grid", {"matching": "transport"}),
    "transport_distance": ("matching_grid", {"matching": "transport", "score": "distance"}),
    "aligned_cosine": ("aligned_cosine_grid", {}),
}
# Between layers of one width, the optimal transport of neurons is an assignment.
ASSIGNING = ("hard", "permutation", "angular", "transport", "transport_distance")
DISTANCES = ("permutation", "transport_distance")
# Formulas of a pair; those of the published code are contestants.
OF_PAIR = {
    "hard": formulas.hard,
    "soft": formulas.soft,
    "permutation": formulas.permutation,
    "angular": formulas.permutation_angle,
    "transport": formulas.hard,
    "transport_distance": formulas.soft_distance,
    "aligned_cosine": formulas.aligned_cosine,
}
AS_PUBLISHED = ("hard", "soft", "permutation", "aligned_cosine")
NO_MEASURE = (measure_formulas.bare_unordered, formulas.bare_assignments)


def _contestants(measure: str) -> dict[str, Contestant]:
    import simcore

    function, options = MEASURES[measure]
    found = {
        "ours": Contestant(functools.partial(getattr(simcore, function), **options)),
        BARE: Contestant(measure_formulas.bare_unordered),
    }
    if measure in AS_PUBLISHED:
        found[PUBLISHED] = Contestant(one_row(OF_PAIR[measure]))
    if measure in ASSIGNING:
        found[ASSIGNED] = Contestant(formulas.bare_assignments)
    return found


def _hard() -> dict[str, Contestant]:
    return _contestants("hard")


def _soft() -> dict[str, Contestant]:
    return _contestants("soft")


def _permutation() -> dict[str, Contestant]:
    return _contestants("permutation")


def _angular() -> dict[str, Contestant]:
    return _contestants("angular")


def _transport() -> dict[str, Contestant]:
    return _contestants("transport")


def _transport_distance() -> dict[str, Contestant]:
    return _contestants("transport_distance")


def _aligned_cosine() -> dict[str, Contestant]:
    return _contestants("aligned_cosine")


@dataclass(frozen=True)
class Job(harness.LayersJob):
    """One measure on one input."""

    measure: str
    contestants: Callable[[], dict[str, Contestant]] = field(repr=False)
    timed: bool = True

    def error(self, grid: np.ndarray, x: Tensor, contestant: Contestant) -> float:
        """Return the error against float64, first and last layer; nan for no measure.

        Distances are over the norm of the first layer.
        """
        from simcore import reference

        if contestant.run in NO_MEASURE:
            return float("nan")
        pick = [0, self.layers - 1]
        layers = [x[i].double().numpy() for i in pick]
        function, options = MEASURES[self.measure]
        # Assignments of the twin are loops in Python, which would take minutes.
        if self.measure in ASSIGNING:
            of_pair = OF_PAIR[self.measure]
            pairs = [[x[i].double(), x[j].double()] for i in pick for j in pick]
            want = np.array([of_pair(*pair) for pair in pairs]).reshape(2, 2)
        else:
            want = getattr(reference, function)(layers, **options)
        unit = float(x[0].norm()) if self.measure in DISTANCES else 1.0
        return float(np.nanmax(np.abs(grid[np.ix_(pick, pick)] - want))) / unit

    def floor_flops(self) -> float:
        """Return the flops of one product for every unordered pair, and of a rotation's SVD.

        22 p^3 for singular vectors (Golub & Van Loan, table 8.6.1).
        """
        pairs = self.layers * (self.layers - 1) / 2
        rotation = 22 * self.p**3 if self.measure == "aligned_cosine" else 0
        return float(pairs * (2 * self.n * self.p**2 + rotation))


JOBS = {
    "hard_match13": Job(13, 1600, 768, "hard", _hard),
    "soft_match13": Job(13, 1600, 768, "soft", _soft),
    "permutation_procrustes13": Job(13, 1600, 768, "permutation", _permutation),
    "permutation_angular13": Job(13, 1600, 768, "angular", _angular),
    "soft_matching13": Job(13, 1600, 768, "transport", _transport),
    "soft_matching_distance13": Job(13, 1600, 768, "transport_distance", _transport_distance),
    "aligned_cosine13": Job(13, 1600, 768, "aligned_cosine", _aligned_cosine),
}

if __name__ == "__main__":
    harness.main({"matching": JOBS}, __doc__)
