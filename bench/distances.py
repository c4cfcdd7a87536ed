"""The table of distances: ours, torch, CKA of the same layers, a pair by the published code.

    python -m bench.distances --job gulp13 --repeats 5
    python -m bench.distances --list

The published codes compare two layers at a time: "published pair" is the time of one pair, the
first layer with the last. A grid of 13 layers is 169 of them. Data as in `bench.measures`; float32,
two threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench import distance_formulas as published
from bench import harness, torch_grids
from bench.recorded import grid_of, twin_of

PAIR = "published pair"
# Jobs of a measure with options: the measure and the options.
VARIED: dict[str, tuple[str, dict[str, Any]]] = {
    "rsm-difference-spectral": ("rsm-difference", {"norm": "spectral"}),
    "gulp": ("gulp", {"ridge": 0.1}),
}
ROTATED = ("procrustes-distance", "procrustes-angular", "size-and-shape")
ROWWISE = ("cosine", "angular", "disagreement", "output-divergence")
# Made of matrix products and elementwise steps, which a compiler can join.
COMPILED = (*ROWWISE, "distance-correlation", "rsm-difference", "uniformity", "concentricity")
MANY = 100  # layers, whose unrolled graph takes long to compile


@dataclass(frozen=True)
class Contestant:
    """A function that returns a grid."""

    run: Callable[[Tensor], object]


@dataclass(frozen=True)
class Job(harness.LayersJob):
    """One measure on one input."""

    measure: str
    timed: bool = True

    def contestants(self) -> dict[str, Contestant]:  # type: ignore[override]
        """Return ours, CKA, and torch and one pair of the published code where they are written."""
        import simcore

        name, options = VARIED.get(self.measure, (self.measure, {}))
        found = {
            "ours": Contestant(grid_of(name, **options)),
            "cka grid": Contestant(simcore.cka_grid),
        }
        formula = self.measure.replace("-", "_")
        grid = getattr(torch_grids, formula, None)
        if grid is not None:
            found["torch"] = Contestant(grid)
        if self.measure in COMPILED and self.layers < MANY:
            found["compiled"] = Contestant(torch.compile(grid, dynamic=False))
        pair = getattr(published, formula, None)
        if pair is not None:
            found[PAIR] = Contestant(lambda x: np.array([[pair(x[0].numpy(), x[-1].numpy())]]))
        return found

    def error(self, grid: np.ndarray, x: Tensor, contestant: Contestant) -> float:
        """Return the error against the twin for the first and the last layer; of CKA, nan."""
        import simcore

        if contestant.run is simcore.cka_grid:
            return float("nan")
        name, options = VARIED.get(self.measure, (self.measure, {}))
        layers = [x[i].double().numpy() for i in (0, -1)]
        want = twin_of(name, **options)(layers[:1], layers[1:])
        return float(np.abs(grid[0, -1] - want).max())

    def floor_flops(self) -> float:
        """Return the flops of Grams (half of them by symmetry) or covariances, and of contractions.

        p^3 / 3 for a Cholesky factor, n p^2 for a triangular system.
        """
        n, p, count = self.n, self.p, self.layers
        pairs = count * (count + 1) / 2
        grams, contraction = count * n**2 * p, pairs * n**2
        whitened = count * (2 * n * p**2 + p**3 / 3)
        return {
            "distance-correlation": grams + contraction,
            "rsm-difference": grams + contraction,
            "rsm-difference-spectral": grams,
            "gulp": whitened + grams + contraction,
            "eigenspace-overlap": whitened + grams + contraction,
            "uniformity": grams,
            **dict.fromkeys(ROTATED, pairs * (2 * n * p**2 + 8 / 3 * p**3)),
            **dict.fromkeys(ROWWISE, 2 * pairs * n * p),
            "imd": 2 * grams,
        }.get(self.measure, 2 * count * n * p)

    def floor_bytes(self) -> float:
        """Return the bytes of one read of the layers."""
        return 4.0 * self.layers * self.n * self.p


def _job(measure: str, layers: int = 13) -> Job:
    return Job(layers, 1600, 768, measure)


JOBS = {
    "distance_correlation13": _job("distance-correlation"),
    "rsm_difference13": _job("rsm-difference"),
    "rsm_spectral13": _job("rsm-difference-spectral"),
    "gulp13": _job("gulp"),
    "eigenspace_overlap13": _job("eigenspace-overlap"),
    "uniformity13": _job("uniformity"),
    "magnitude13": _job("magnitude"),
    "concentricity13": _job("concentricity"),
    "procrustes_distance13": _job("procrustes-distance"),
    "procrustes_angular13": _job("procrustes-angular"),
    "size_and_shape13": _job("size-and-shape"),
    "cosine13": _job("cosine"),
    "angular13": _job("angular"),
    "disagreement13": _job("disagreement"),
    "output_divergence13": _job("output-divergence"),
    "imd13": _job("imd"),
    "rtd2": Job(2, 200, 768, "rtd"),
    "distance_correlation325": _job("distance-correlation", 325),
}

if __name__ == "__main__":
    harness.main({"distances": JOBS}, __doc__)
