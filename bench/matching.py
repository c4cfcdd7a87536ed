"""The table of matched neurons and rotated layers: ours, torch, bare products, the published code.

    python -m bench.matching --job hard_match13 --repeats 5
    python -m bench.matching --list

Data: ``X_l = X_(l-1) + 0.5 noise``, float32, two threads. "published, 1 row" computes the pairs of
the first layer with all others: times the number of layers it is what a grid takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from bench import harness, measure_formulas, torch_grids
from bench import matching_formulas as formulas
from bench.neighbours import PUBLISHED, Contestant, one_row
from bench.recorded import grid_of, twin_of

BARE = "bare products"  # one for every unordered pair; no measure
# Between layers of one width, the optimal transport of neurons is an assignment.
ASSIGNING = (
    *("match-hard", "match-transport", "transport-distance"),
    *("permutation-procrustes", "permutation-angular"),
)
DISTANCES = ("permutation-procrustes", "transport-distance")
# Formulas of a pair; those of the published code are contestants.
OF_PAIR = {
    "match-hard": formulas.hard,
    "match-soft": formulas.soft,
    "permutation-procrustes": formulas.permutation,
    "permutation-angular": formulas.permutation_angle,
    "match-transport": formulas.hard,
    "transport-distance": formulas.soft_distance,
    "aligned-cosine": formulas.aligned_cosine,
}
AS_PUBLISHED = ("match-hard", "match-soft", "permutation-procrustes", "aligned-cosine")


@dataclass(frozen=True)
class Job(harness.LayersJob):
    """One measure on one input."""

    measure: str
    timed: bool = True

    def contestants(self) -> dict[str, Contestant]:  # type: ignore[override]
        """Return ours, torch, bare products, and the published code where it is written here."""
        found = {
            "ours": Contestant(grid_of(self.measure)),
            "torch": Contestant(getattr(torch_grids, self.measure.replace("-", "_"))),
            BARE: Contestant(measure_formulas.bare_unordered),
        }
        if self.measure in AS_PUBLISHED:
            found[PUBLISHED] = Contestant(one_row(OF_PAIR[self.measure]))
        return found

    def error(self, grid: np.ndarray, x: Tensor, contestant: Contestant) -> float:
        """Return the error against float64, first and last layer; nan for no measure.

        Distances are over the norm of the first layer.
        """
        if contestant.run is measure_formulas.bare_unordered:
            return float("nan")
        pick = [0, self.layers - 1]
        layers = [x[i].double().numpy() for i in pick]
        # Assignments of the twin are loops in Python, which would take minutes.
        if self.measure in ASSIGNING:
            of_pair = OF_PAIR[self.measure]
            pairs = [[x[i].double(), x[j].double()] for i in pick for j in pick]
            want = np.array([of_pair(*pair) for pair in pairs]).reshape(2, 2)
        else:
            want = twin_of(self.measure)(layers)
        unit = float(x[0].norm()) if self.measure in DISTANCES else 1.0
        return float(np.nanmax(np.abs(grid[np.ix_(pick, pick)] - want))) / unit

    def floor_flops(self) -> float:
        """Return the flops of one product for every unordered pair, and of a rotation's SVD.

        22 p^3 for singular vectors (Golub & Van Loan, table 8.6.1).
        """
        pairs = self.layers * (self.layers - 1) / 2
        rotation = 22 * self.p**3 if self.measure == "aligned-cosine" else 0
        return float(pairs * (2 * self.n * self.p**2 + rotation))


def _job(measure: str) -> Job:
    return Job(13, 1600, 768, measure)


JOBS = {
    "hard_match13": _job("match-hard"),
    "soft_match13": _job("match-soft"),
    "permutation_procrustes13": _job("permutation-procrustes"),
    "permutation_angular13": _job("permutation-angular"),
    "soft_matching13": _job("match-transport"),
    "soft_matching_distance13": _job("transport-distance"),
    "aligned_cosine13": _job("aligned-cosine"),
}

if __name__ == "__main__":
    harness.main({"matching": JOBS}, __doc__)
