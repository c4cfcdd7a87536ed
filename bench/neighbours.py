"""The table of measures of neighbours: ours, `cka_grid` of the same layers, the published codes.

    python -m bench.neighbours --job mutual13 --repeats 5
    python -m bench.neighbours --list

Data: ``X_l = X_(l-1) + 0.5 noise``, float32, two threads. "published, 1 row" computes the pairs of
the first layer with all others: times the number of layers it is what a grid takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench import harness
from bench import neighbour_formulas as formulas
from bench.harness import MB

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


def _contestants(
    function: str,
    options: dict[str, Any],
    published: Callable[[Tensor, Tensor], float] | None,
    max_memory: int | None = None,
) -> dict[str, Contestant]:
    import simcore

    grid = functools.partial(getattr(simcore, function), max_memory=max_memory, **options)
    cka = functools.partial(simcore.cka_grid, max_memory=max_memory)
    found = {"ours": Contestant(grid), CKA: Contestant(cka)}
    return found if published is None else {**found, PUBLISHED: Contestant(one_row(published))}


def _mutual() -> dict[str, Contestant]:
    return _contestants("knn_grid", {}, formulas.mutual)


def _mutual_alone() -> dict[str, Contestant]:
    return _contestants("knn_grid", {}, None, 480 * MB)


def _jaccard() -> dict[str, Contestant]:
    return _contestants("knn_grid", {"measure": "jaccard"}, formulas.jaccard)


def _rank() -> dict[str, Contestant]:
    return _contestants("knn_grid", {"measure": "rank"}, formulas.rank)


def _second_order() -> dict[str, Contestant]:
    return _contestants("knn_grid", {"measure": "second-order"}, formulas.second_order)


def _cknna() -> dict[str, Contestant]:
    return _contestants("cknna_grid", {}, formulas.cknna)


@dataclass(frozen=True)
class Job(harness.LayersJob):
    """One measure on one input."""

    measure: str
    contestants: Callable[[], dict[str, Contestant]] = field(repr=False)
    timed: bool = True

    def error(self, grid: np.ndarray, x: Tensor, contestant: Contestant) -> float:
        """Return the error against the twin, first and last layer; nan for `cka_grid`."""
        from simcore import cka_grid, reference

        if getattr(contestant.run, "func", None) is cka_grid:
            return float("nan")
        pick = [0, self.layers - 1]
        layers = [x[i].double().numpy() for i in pick]
        if self.measure == "cknna":
            want = reference.cknna_grid(layers)
        else:
            want = reference.knn_grid(layers, measure=self.measure)
        return float(np.nanmax(np.abs(grid[np.ix_(pick, pick)] - want)))

    def floor_flops(self) -> float:
        """Return the flops of half of every layer's products of rows."""
        return float(self.layers * self.n**2 * self.p)


JOBS = {
    "mutual13": Job(13, 1600, 768, "mutual", _mutual),
    "mutual325": Job(325, 1600, 768, "mutual", _mutual_alone),
    "jaccard13": Job(13, 1600, 768, "jaccard", _jaccard),
    "rank13": Job(13, 1600, 768, "rank", _rank),
    "second_order13": Job(13, 1600, 768, "second-order", _second_order),
    "cknna13": Job(13, 1600, 768, "cknna", _cknna),
}

if __name__ == "__main__":
    harness.main({"neighbours": JOBS}, __doc__)
