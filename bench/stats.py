"""Statistics at scale: 200 permutations of the 13 x 13 grid, and their moments without drawing.

    python -m bench.stats --job permutation13 --repeats 5

Data as in bench/cka.py. The floor of `moments13` is that of one CKA grid, whose time stands beside.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from bench import harness
from bench.harness import Contestant

PERMUTATIONS = 200
CHECKED = 5  # permutations whose null values are compared with float64


def _orders(n: int, count: int) -> Tensor:
    """The permutations that `simcore.stats` draws for seed 0, the identity first."""
    from simcore.stats.draws import permutations
    from simcore.stats.resampled_grid import generator

    return torch.from_numpy(permutations(generator(0), n, count, None)).long()


def permuted(x: Tensor) -> Tensor:
    """Ours: observed grid and null values, ``[1 + permutations, L, L]``."""
    from simcore import stats

    result = stats.permutation_test(x, permutations=PERMUTATIONS, return_null=True)
    return torch.cat([torch.as_tensor(result.observed)[None], torch.as_tensor(result.null)])


def torch_loop(x: Tensor, orders: Tensor | None = None) -> Tensor:
    """Compute `permuted` in plain torch: Grams once, reindexed for each permutation."""
    x = x - x.mean(dim=1, keepdim=True)
    grams = torch.bmm(x, x.mT)
    flat = grams.flatten(1)
    norms = flat.norm(dim=1)
    orders = _orders(x.shape[1], PERMUTATIONS) if orders is None else orders
    values = [flat @ grams[:, order][:, :, order].flatten(1).T for order in orders]
    return torch.stack(values) / torch.outer(norms, norms)


def moments(x: Tensor, kernel: str = "linear") -> Tensor:
    """Ours: observed grid and mean of the null distribution, ``[2, L, L]``."""
    from simcore import stats

    result = stats.permutation_test(x, method="moments", kernel=kernel)
    return torch.stack([torch.as_tensor(result.observed), torch.as_tensor(result.null_mean)])


def grid(x: Tensor, kernel: str = "linear") -> Tensor:
    """One CKA grid, ``[1, L, L]``."""
    from simcore import cka_grid

    return torch.as_tensor(cka_grid(x, kernel=kernel))[None]


def _permutation() -> dict[str, Contestant]:
    return {"ours": Contestant(permuted), "torch loop": Contestant(torch_loop)}


def _moments() -> dict[str, Contestant]:
    return {"ours": Contestant(moments), "one grid": Contestant(grid)}


def _moments_rbf() -> dict[str, Contestant]:
    return {
        "ours": Contestant(functools.partial(moments, kernel="rbf")),
        "one grid": Contestant(functools.partial(grid, kernel="rbf")),
    }


@dataclass(frozen=True)
class Job(harness.LayersJob):
    """Draws of the null distribution on one input."""

    draws: int
    kernel: str
    contestants: Callable[[], dict[str, Contestant]] = field(repr=False)
    timed: bool = True

    def error(self, grid: np.ndarray, x: Tensor, contestant: Contestant) -> float:
        """Return the error of the observed grid and of the first draws, on three layers."""
        pick = sorted({0, self.layers // 2, self.layers - 1})
        count = 1 + CHECKED if self.draws else 1
        if self.kernel == "linear":
            want = torch_loop(x[pick].double(), _orders(x.shape[1], count)[:count]).numpy()
        else:
            from simcore import reference

            want = reference.cka_grid([x[i].double().numpy() for i in pick], kernel=self.kernel)[
                None
            ]
        return float(np.abs(grid[:count][:, pick][:, :, pick] - want).max())

    def floor_flops(self) -> float:
        """Return the flops of half of each Gram matrix, and of a product per grid or draw."""
        grams = self.layers * self.n**2 * self.p
        return float(grams + (1 + self.draws) * self.n**2 * self.layers**2)


JOBS = {
    "permutation13": Job(13, 1600, 768, PERMUTATIONS, "linear", _permutation),
    "moments13": Job(13, 1600, 768, 0, "linear", _moments),
    "moments_rbf13": Job(13, 1600, 768, 0, "rbf", _moments_rbf),
}

if __name__ == "__main__":
    harness.main({"stats": JOBS}, __doc__)
