"""The table of affine couplings, forward and backward: ours, eager and compiled torch, the floor.

    python -m bench.coupling --job coupling --repeats 21
    python -m bench.coupling --list

The floor is a copy of the bytes that must move: forward reads x2, s_raw and t and writes y2;
backward reads the gradient of y2, x2 and s_raw and writes three gradients. float32, two threads.
"Rows" are whole rows, y1 = x1 beside y2; "half" is the half that changes. Our operator touches
this half alone, and so does a stack of couplings that keeps its halves apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from bench import coupling_formulas as formulas
from bench import harness

CLAMP = 1.0
FLOPS = 100  # an entry forward and backward, about: two exponentials and a division each
MOVED = 10  # numbers of one entry that are read or written
ERROR_ROWS = 64

Coupling = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Pieces:
    """The arguments of a contestant, contiguous views of the job's one input."""

    x: Tensor  # [.., n, d], or of the half [.., n, k]
    params: Tensor  # [.., n, 2 k]
    grad_y: Tensor  # as x
    grad_log_det: Tensor  # [.., n]

    @classmethod
    def of(cls, data: Tensor, whole: bool) -> Pieces:
        """Cut ``[3, .., n, d]``; the half that changes takes the first half of the memory."""
        x, params, grad = data
        k = data.shape[-1] // 2
        grad_log_det = grad.flatten()[: math.prod(x.shape[:-1])].view(x.shape[:-1])
        if not whole:
            half = (*x.shape[:-1], k)
            x, grad = (t.flatten()[: math.prod(half)].view(half) for t in (x, grad))
        return cls(x, params, grad, grad_log_det)


@dataclass(frozen=True)
class Contestant:
    """A coupling on whole rows or on the half that changes."""

    couple: Coupling
    whole: bool

    def run(self, data: Tensor) -> Tensor:
        """Run both directions; return params' gradient, which depends on nearly everything."""
        return self.gradients(Pieces.of(data, self.whole))[1]

    def gradients(self, pieces: Pieces) -> tuple[Tensor, ...]:
        inputs = [t.detach().requires_grad_() for t in (pieces.x, pieces.params)]
        results = self.couple(*inputs)
        return torch.autograd.grad(results, inputs, (pieces.grad_y, pieces.grad_log_det))


def _contestants() -> dict[str, Contestant]:
    from simcore._ops.coupling import affine_coupling

    def ours(x: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        return affine_coupling(x, params, CLAMP, False)

    return {
        "ours": Contestant(ours, whole=False),
        "torch rows": Contestant(formulas.on_rows, whole=True),
        "torch half": Contestant(formulas.on_half, whole=False),
        "compiled rows": Contestant(torch.compile(formulas.on_rows, dynamic=False), whole=True),
        "compiled half": Contestant(torch.compile(formulas.on_half, dynamic=False), whole=False),
    }


@dataclass(frozen=True)
class Job(harness.Job):
    """One row of the table."""

    shape: tuple[int, ...]  # [.., n, d]
    contestants: Callable[[], dict[str, Contestant]] = field(default=_contestants, repr=False)
    timed: bool = True

    def data(self) -> Tensor:
        """Rows, params and gradients of rows, ``[3, .., n, d]``."""
        return torch.randn(3, *self.shape, generator=torch.Generator().manual_seed(0))

    def tiny(self) -> Job:
        return replace(self, shape=(*self.shape[:-2], 2, 4))

    def scaled(self, factor: float) -> Job:
        *batch, n, d = self.shape
        return replace(self, shape=(*batch, max(1, int(n * factor)), d))

    def error(self, grid: np.ndarray, x: Tensor, contestant: Contestant) -> float:
        """Return the largest error of some rows of the gradient of params."""
        pieces = Pieces.of(x, contestant.whole)
        first = [
            t.flatten(0, t.ndim - 2)[:ERROR_ROWS].double()
            for t in (pieces.x, pieces.params, pieces.grad_y)
        ]
        grad_log_det = pieces.grad_log_det.flatten()[:ERROR_ROWS].double()
        couple = formulas.on_rows if contestant.whole else formulas.on_half
        _, want = Contestant(couple, contestant.whole).gradients(Pieces(*first, grad_log_det))
        got = grid.reshape(-1, grid.shape[-1])[:ERROR_ROWS]
        return float(np.abs(got - want.numpy()).max())

    def floor_flops(self) -> float:
        return FLOPS * math.prod(self.shape) / 2

    def floor_bytes(self) -> float:
        return 4 * MOVED * math.prod(self.shape) / 2


JOBS = {"coupling": Job((1600, 768)), "coupling 64": Job((64, 1600, 768))}

if __name__ == "__main__":
    harness.main({"coupling": JOBS}, __doc__)
