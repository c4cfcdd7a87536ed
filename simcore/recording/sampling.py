"""Which rows of a forward pass are kept."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
import torch
from torch import Tensor

from simcore._grid.options import check_count


class Sampler:
    """Draws rows of each forward pass, the same ones in every layer that has as many rows.

    `sample` is the largest number of rows of a pass, or a share of them in (0, 1); None keeps all.
    A draw depends on the seed, the number of the pass and the number of its rows alone.
    """

    def __init__(self, sample: float | None, seed: int) -> None:
        whole = isinstance(sample, Integral) and not isinstance(sample, bool) and sample >= 1
        share = isinstance(sample, Real) and not isinstance(sample, Integral) and 0 < sample < 1
        if sample is not None and not whole and not share:
            raise ValueError(
                f"sample: wanted a number of rows or a share in (0, 1), got {sample!r}"
            )
        self.sample = sample
        self.seed = check_count(seed, "seed", 0)

    def draw(self, pass_number: int, rows: int) -> Tensor | None:
        """Return the indices of the rows to keep in rising order, int64, or None for all."""
        if self.sample is None:
            return None
        if isinstance(self.sample, Integral):
            wanted = int(self.sample)
        else:
            wanted = max(1, round(self.sample * rows))
        if wanted >= rows:
            return None
        rng = np.random.default_rng([self.seed, pass_number, rows])
        return torch.from_numpy(np.sort(rng.choice(rows, wanted, replace=False)))
