"""Optimal transport between the neurons of layers: values, and the plans that they are of."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor

from simcore._grid.inputs import centred, on_host
from simcore._grid.memory import require_memory
from simcore._ops.columns import varying
from simcore._ops.neurons import match_neurons
from simcore._ops.neurons_composed import assigned_neurons
from simcore._optional import import_optional

COPIES = 6  # float64 arrays of the size of a matrix of costs that transport of a pair holds
PIVOTS = 10**9  # POT stops at 1e5 unless told otherwise, and then its plan is not the best one


def neuron_counts(layers: list[Tensor], score: str) -> list[int]:
    """Return how many neurons of each layer are matched; one wait for the device."""
    if score != "correlation":
        return [layer.shape[1] for layer in layers]
    counts: list[int] = torch.stack([varying(layer).sum() for layer in layers]).tolist()
    return counts


Plans = dict[tuple[int, int], Tensor]


def transport(
    x: list[Tensor],
    y: list[Tensor],
    score: str,
    bound: int,
    report: Callable[[float], None],
    plans: Plans | None = None,
) -> Tensor:
    """Return the grid of optimal transport; an empty ``y`` compares x with itself."""
    others = y or x
    grid = torch.full((len(x), len(others)), torch.nan, dtype=torch.float64, device=x[0].device)
    counts = neuron_counts(x + y, score)
    sizes = [counts[: len(x)], counts[len(x) :] if y else counts]
    # Between equally many neurons the best plan is an assignment.
    for size in sorted(set(sizes[0]) & set(sizes[1]) - {0}):
        rows, columns = ([i for i, s in enumerate(side) if s == size] for side in sizes)
        of_size = [x[i] for i in rows], [y[j] for j in columns] if y else []
        if plans is None:
            values = match_neurons(*of_size, "one-to-one", score, bound)
        else:
            values, partners = assigned_neurons(*of_size, score, bound)
            for i, of_row in zip(rows, partners, strict=True):
                for j, partner in zip(columns, of_row, strict=True):
                    plans[i, j] = _as_plan(partner, others[j].shape[1], size)
        if score == "distance":
            values = values / size**0.5
        for i, row in zip(rows, values, strict=True):
            for j, value in zip(columns, row, strict=True):
                grid[i, j] = value
    # All other pairs, on the host; of X with itself, one of the two directions.
    pairs = [
        (i, j)
        for i, p in enumerate(sizes[0])
        for j, q in enumerate(sizes[1])
        if p and q and p != q and (y or i < j)
    ]
    if not pairs:
        report(1.0)
        return grid
    library, on_cpu = _pot(), _copies(x, others)
    optimal = torch.full(grid.shape, torch.nan, dtype=torch.float64)
    for done, (i, j) in enumerate(pairs, 1):
        optimal[i, j], plan = _optimal(on_cpu[0][i], on_cpu[1][j], score, bound, library)
        if plans is not None:
            plans[i, j] = plan.to(grid.device)
        if not y:
            optimal[j, i] = optimal[i, j]
            if plans is not None:
                plans[j, i] = plans[i, j].T.clone()
        report(done / len(pairs))
    optimal = optimal.to(grid.device)
    return torch.where(optimal.isnan(), grid, optimal)


def in_rows(plans: Plans, x: list[Tensor], y: list[Tensor]) -> list[list[Tensor]]:
    """Return the plans of all pairs; a plan of zeros where a layer has no neuron with variance."""

    def none(a: Tensor, b: Tensor) -> Tensor:
        return a.new_zeros((a.shape[1], b.shape[1]), dtype=torch.float64)

    pairs = [[(i, j) for j in range(len(y))] for i in range(len(x))]
    return [[plans[i, j] if (i, j) in plans else none(x[i], y[j]) for i, j in row] for row in pairs]


def _as_plan(partner: Tensor, width: int, size: int) -> Tensor:
    """Return the plan ``[p, width]`` of an assignment of ``size`` neurons."""
    plan = torch.zeros(len(partner), width, dtype=torch.float64, device=partner.device)
    some = (partner >= 0)[:, None].double() / size
    return plan.scatter_(1, partner.clamp(min=0)[:, None], some)


def _copies(x: list[Tensor], y: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return both sides on the CPU, where POT computes; one wait for the device."""
    if x[0].device.type == "cpu":
        return x, y
    dtype = functools.reduce(torch.promote_types, [layer.dtype for layer in x + y])
    copies = on_host([layer.to(dtype) for layer in x + y])
    return copies[: len(x)], copies[len(x) :]


def _pot() -> ModuleType:
    return import_optional("ot", "matching: 'transport' between layers of different widths")


def _optimal(
    x: Tensor, y: Tensor, score: str, bound: int, library: ModuleType
) -> tuple[float, Tensor]:
    """Return the value of one pair by the network simplex of POT, in float64, and its plan."""
    needed = 8 * (COPIES * x.shape[1] * y.shape[1] + 3 * (x.numel() + y.numel()))
    require_memory(needed, bound, "the transport of one pair")
    unit, plan = 1.0, torch.zeros(x.shape[1], y.shape[1], dtype=torch.float64)
    kept = [torch.ones(layer.shape[1], dtype=torch.bool) for layer in (x, y)]
    if score == "correlation":
        a, b = (_standardised(layer) for layer in (x, y))
        kept = [varying(layer) for layer in (x, y)]
        costs = -(a.T @ b).clamp(-1.0, 1.0)
    else:
        unit = max(float(x.abs().max()), float(y.abs().max())) or 1.0
        a, b = x.double() / unit, y.double() / unit
        # Of differences: neither an offset nor a large column costs digits.
        costs = torch.cdist(a.T, b.T, compute_mode="donot_use_mm_for_euclid_dist").square()
    weights = [torch.full((size,), 1 / size, dtype=torch.float64) for size in costs.shape]
    marginals = [weight.numpy() for weight in weights]
    flow = torch.from_numpy(library.emd(*marginals, costs.numpy(), numItermax=PIVOTS))
    plan[kept[0][:, None] & kept[1]] = flow.flatten()
    total = float((flow * costs).sum())
    return (-total if score == "correlation" else unit * max(total, 0.0) ** 0.5), plan


def _standardised(layer: Tensor) -> Tensor:
    """Return the neurons that vary, centred and of unit length, in float64."""
    wide = centred(layer[:, varying(layer)])
    return wide / torch.linalg.vector_norm(wide, dim=0)
