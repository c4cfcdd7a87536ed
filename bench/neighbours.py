"""The table of neighbours: ours, plain and compiled torch, `cka_grid`, the published codes.

    python -m bench.neighbours --job mutual13 --repeats 5
    python -m bench.neighbours --list

Data: ``X_l = X_(l-1) + 0.5 noise``, float32, two threads. "published, 1 row" computes the pairs of
the first layer with all others: times the number of layers it is what a grid takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bench import harness, torch_grids
from bench import neighbour_formulas as formulas
from bench.harness import MB
from bench.recorded import grid_of, twin_of

PUBLISHED = "published, 1 row"
CKA = "cka_grid"  # for its time; it computes another measure


@dataclass(frozen=True)
class Contestant:
    """A function that returns a grid."""

    run: Callable[[Tensor], object]


def one_row(pair: Callable[[Tensor, Tensor], float]) -> Callable[[Tensor], Tensor]:
    """Return a function that gives the first row of a grid, pair by pair, and nan for the rest."""

    def run(x: Tensor) -> Tensor:
        grid = torch.full((len(x), len(x)), torch.nan)
        grid[0] = torch.tensor([pair(x[0], layer) for layer in x])
        return grid

    return run


BOUND = 480 * MB  # of many layers


@dataclass(frozen=True)
class Job(harness.LayersJob):
    """One measure on one input; of many layers, `bounded`, by ours, CKA and eager torch alone."""

    measure: str
    bounded: bool = False
    timed: bool = True

    def contestants(self) -> dict[str, Contestant]:  # type: ignore[override]
        """Return ours, CKA, torch, and the first row of the grid by the published code."""
        import simcore

        bound = BOUND if self.bounded else None
        found = {
            "ours": Contestant(functools.partial(grid_of(self.measure), max_memory=bound)),
            CKA: Contestant(functools.partial(simcore.cka_grid, max_memory=bound)),
        }
        name = self.measure.removeprefix("knn-").replace("-", "_")
        found["torch"] = Contestant(getattr(torch_grids, name))
        if not self.bounded:
            found["compiled"] = Contestant(torch.compile(found["torch"].run, dynamic=False))
            found[PUBLISHED] = Contestant(one_row(getattr(formulas, name)))
        return found

    def error(self, grid: np.ndarray, x: Tensor, contestant: Contestant) -> float:
        """Return the error against the twin, first and last layer; nan for `cka_grid`."""
        from simcore import cka_grid

        if getattr(contestant.run, "func", None) is cka_grid:
            return float("nan")
        pick = [0, self.layers - 1]
        layers = [x[i].double().numpy() for i in pick]
        want = twin_of(self.measure)(layers)
        return float(np.nanmax(np.abs(grid[np.ix_(pick, pick)] - want)))

    def floor_flops(self) -> float:
        """Return the flops of half of every layer's products of rows."""
        return float(self.layers * self.n**2 * self.p)


JOBS = {
    "mutual13": Job(13, 1600, 768, "knn-mutual"),
    "mutual325": Job(325, 1600, 768, "knn-mutual", bounded=True),
    "jaccard13": Job(13, 1600, 768, "knn-jaccard"),
    "rank13": Job(13, 1600, 768, "knn-rank"),
    "second_order13": Job(13, 1600, 768, "knn-second-order"),
    "cknna13": Job(13, 1600, 768, "cknna"),
}

if __name__ == "__main__":
    harness.main({"neighbours": JOBS}, __doc__)
