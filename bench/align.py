"""Alignment: 16 maps of d = 384 on n = 1,600 rows, in one batched loop and one after another.

    python -m bench.align --repeats 3

The floor is the products of the perceptrons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from bench import harness
from bench.harness import Contestant

PAIRS, EPOCHS, HIDDEN, BLOCKS = 16, 3, 256, 4


def _train(x: Tensor, at_once: int | None) -> Tensor:
    from simcore.align import Training, align_pairs

    params = {"hidden": HIDDEN, "n_blocks": BLOCKS, "depth": 1}
    params["training"] = Training(max_epochs=EPOCHS)
    results = align_pairs(list(x[::2]), list(x[1::2]), "inn", at_once=at_once, **params)
    return torch.tensor([result.heldout.relative for result in results], dtype=torch.float64)


def together(x: Tensor) -> Tensor:
    """Train all pairs in one batched loop, as simcore does."""
    return _train(x, None)


def one_after_another(x: Tensor) -> Tensor:
    """Train every pair in a loop of its own."""
    return _train(x, 1)


def _contestants() -> dict[str, Contestant]:
    return {"ours": Contestant(together), "one by one": Contestant(one_after_another)}


@dataclass(frozen=True)
class PairsJob(harness.Job):
    """``pairs`` maps between drawn layers of ``n`` rows."""

    pairs: int = PAIRS
    n: int = 1600
    p: int = 384
    contestants: Callable[[], dict[str, Contestant]] = field(default=_contestants)
    timed: bool = True

    def data(self) -> Tensor:
        return harness.drifting_layers(2 * self.pairs, self.n, self.p)

    def tiny(self) -> PairsJob:
        return replace(self, pairs=2, n=40, p=8)

    def scaled(self, factor: float) -> PairsJob:
        return replace(self, n=max(40, int(self.n * factor)))

    def error(self, grid: np.ndarray, x: Tensor, contestant: Contestant) -> float:
        """Return the largest difference of two pairs' errors to those trained in float64."""
        exact = one_after_another(x[:4].double()).numpy()
        return float(np.abs(grid[:2] - exact).max())

    def floor_flops(self) -> float:
        half = self.p / 2
        weights = half * HIDDEN + HIDDEN * self.p
        rows = 0.8 * 0.9 * self.n  # without held-out rows and rows that decide when to stop
        return self.pairs * EPOCHS * BLOCKS * rows * 6 * weights


JOBS: dict[str, PairsJob] = {"pairs16": PairsJob()}

if __name__ == "__main__":
    harness.main({"align": JOBS}, __doc__ or "")
