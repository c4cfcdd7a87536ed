"""Grids that average only the best neurons, or the largest canonical correlations, of each pair.

Wu et al. 2020, footnote 3: the mean over the top k, "in case most of the layer is noise". The
operators reduce neurons and correlations to their means as they are formed, and give no single
values, except `best_partners`. The functions here compute the single values of one pair at a time
in float64. They are slower than the operators, and hold one product of two layers in memory.

Projection weights belong to canonical directions. Directions of one correlation may be mixed. A
mixture has other weights, so that the value follows rounding, unless the value is this correlation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from numbers import Integral, Real

import torch
from torch import Tensor

from simcore._decomposed import DecomposedSides
from simcore._grid.accuracy import TOLERANCE, places_again
from simcore._grid.basis import Basis
from simcore._grid.finish import warn_caller
from simcore._grid.inputs import centred
from simcore._grid.memory import memory_bound
from simcore._grid.side import Side, Sides
from simcore._ops.neurons import best_partners
from simcore._ops.spectral import pwcca
from simcore._ops.spectral_batched import weighted_mean
from simcore.basis import decompose

TopK = int | float | None
Report = Callable[[float], None]

_ROUNDING = 1e-9  # 0.29 * 100 is below 29 in float64
_ENTRIES = 2**20  # of a layer that are converted to float64 at a time
_TABLE_BYTES = 16  # of a neuron in the table of best partners: a value and a number


def check_top_k(top_k: TopK) -> TopK:
    if top_k is None:
        return None
    if isinstance(top_k, Integral) and not isinstance(top_k, bool) and top_k >= 1:
        return int(top_k)
    if isinstance(top_k, Real) and not isinstance(top_k, Integral) and 0 < top_k <= 1:
        return float(top_k)
    raise ValueError(f"top_k: wanted a count of at least 1 or a share in (0, 1], got {top_k!r}")


def top_count(top_k: int | float, available: int) -> int:
    """Return how many of `available` values `top_k` keeps: a share rounds down, to 1 at least."""
    if isinstance(top_k, int):
        return min(top_k, available)
    return min(max(int(top_k * available + _ROUNDING), 1), available)


def top_partners(
    x: list[Tensor], y: list[Tensor], top_k: int | float, workspace: int, report: Report
) -> Tensor:
    """Return the mean of the best values of the top neurons of X, ``[Lx, Ly]`` float64."""
    # An empty `y` compares X with itself. The table of all neurons is made for as many layers of Y
    # at a time as fit into half of the `workspace` bytes (0: a quarter of the free memory).
    column = _TABLE_BYTES * sum(layer.shape[1] for layer in x)
    others = y or x
    bound = memory_bound(workspace, x[0])
    together = min(max(bound // (2 * column), 1), len(others))
    left = max(bound - together * column, 1)
    if together == len(others):
        return top_of_table(_table(x, y, left), x, top_k)
    parts = []
    for start in range(0, len(others), together):
        table = _table(x, others[start : start + together], left)
        parts.append(top_of_table(table, x, top_k))
        report(min(start + together, len(others)) / len(others))
    return torch.cat(parts, dim=1)


def _table(x: list[Tensor], y: list[Tensor], left: int) -> Tensor:
    """Return the table of best values, ``[neurons of all X, Ly]``, made within `left` bytes."""
    try:
        return best_partners(x, y, True, left)[1]
    except ValueError as refused:
        if str(refused).startswith("max_memory"):
            raise ValueError(f"{refused} beside the table of single neurons") from None
        raise


def top_of_table(best: Tensor, x: list[Tensor], top_k: int | float) -> Tensor:
    """Return the means of the top values in the table ``[neurons of all X, Ly]`` of `x`."""
    of_layers = best.split([layer.shape[1] for layer in x])
    # One synchronisation with the device for all layers.
    defined = torch.stack([(~values.isnan()).sum(0) for values in of_layers]).tolist()
    return torch.stack(
        [
            torch.stack([_top_mean(*pair, top_k) for pair in zip(values.T, counts, strict=True)])
            for values, counts in zip(of_layers, defined, strict=True)
        ]
    )


def _top_mean(values: Tensor, defined: int, top_k: int | float) -> Tensor:
    """Return the mean of the largest of the ``defined`` values that are not ``nan``."""
    known = values.masked_fill(values.isnan(), -torch.inf)
    return known.topk(top_count(top_k, defined)).values.mean()


def top_multiple(
    layers: list[Tensor], vectors: list[Tensor], top_k: int | float, report: Report
) -> Tensor:
    """Return the mean of the largest multiple correlations, ``[len(layers), len(vectors)]``."""
    rows = []
    for i, layer in enumerate(layers):
        values = [torch.cat(parts) for parts in zip(*_multiple(layer, vectors), strict=True)]
        defined = int((~values[0].isnan()).sum())  # the neurons that vary, whatever the vectors
        rows.append(torch.stack([_top_mean(v, defined, top_k) for v in values]))
        report((i + 1) / len(layers))
    return torch.stack(rows)


def _multiple(layer: Tensor, vectors: list[Tensor]) -> Iterator[list[Tensor]]:
    """Yield, for some neurons at a time, their multiple correlation with each of the vectors."""
    for part in layer.split(max(_ENTRIES // len(layer), 1), dim=1):
        columns = centred(part)
        norms = torch.linalg.vector_norm(columns, dim=0)
        norms = norms.masked_fill((part == part[0]).all(0), float("nan"))
        products = (torch.linalg.vector_norm(_product(v, columns), dim=0) for v in vectors)
        yield [(norm / norms).clamp(max=1.0) for norm in products]


def top_canonical(
    x: list[Tensor],  # orthonormal vectors [n, k_i]
    y: list[Tensor],  # empty if X is compared with itself
    top_k: int | float,
    power: int,
    smaller: Tensor,  # [Lx, Ly], the number of canonical correlations of every pair
    report: Report,
) -> Tensor:
    """Return the mean of the largest canonical correlations, to a power, ``[Lx, Ly]`` float64."""
    grid, available = torch.zeros_like(smaller), smaller.tolist()
    for i, j in _pairs(x, y, report):
        rho = torch.linalg.svdvals(_product(x[i], (y or x)[j])).clamp(max=1.0)
        kept = top_count(top_k, int(available[i][j]))
        grid[i, j] = (rho[:kept] ** power).mean()
        if not y:
            grid[j, i] = grid[i, j]
    return grid


def top_weighted(
    x: list[Tensor],
    weighted: list[Tensor],
    y: list[Tensor],
    top_k: int | float,
    smaller: Tensor,
    report: Report,
) -> tuple[Tensor, Tensor]:
    """Return the weighted mean of the largest canonical correlations, ``[Lx, Ly]`` float64."""
    # The second grid holds the errors of ``simcore::pwcca``. The weights of the correlations that
    # are kept are scaled to sum to 1. Parameters are as for `top_canonical`, and `weighted`:
    # ``diag(s) V'`` of the layers of X.
    grid, errors, available = torch.zeros_like(smaller), torch.zeros_like(smaller), smaller.tolist()
    for i, j in _pairs(x, y, report):
        left, rho, right = torch.linalg.svd(_product(x[i], (y or x)[j]), full_matrices=False)
        kept = top_count(top_k, int(available[i][j]))
        is_kept = torch.arange(len(rho), device=rho.device) < kept
        dtype = torch.promote_types(x[i].dtype, (y or x)[j].dtype)
        ways = [(i, j, left.T)] if y else [(i, j, left.T), (j, i, right)]
        for one, other, directions in ways:
            grid[one, other], errors[one, other] = weighted_mean(
                directions, rho.clamp(max=1.0), is_kept, weighted[one].double(), dtype
            )
    return grid, errors


def _pairs(x: list[Tensor], y: list[Tensor], report: Report) -> Iterator[tuple[int, int]]:
    """Yield the pairs of layers; of X with itself, only those with ``i <= j``."""
    for i in range(len(x)):
        for j in range(len(y)) if y else range(i, len(x)):
            yield i, j
        report((i + 1) / len(x))


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a' b`` in float64, summed over blocks of rows."""
    rows = max(_ENTRIES // (a.shape[1] + b.shape[1]), 1)
    total = a.new_zeros(a.shape[1], b.shape[1], dtype=torch.float64)
    for of_a, of_b in zip(a.split(rows), b.split(rows), strict=True):
        total.addmm_(of_a.double().T, of_b.double())
    return total


def weighted_grid(
    function: str, decomposed: DecomposedSides, top_k: TopK, standardize: bool, report: Report
) -> Tensor:
    """Return the weighted means of the correlations, ``[Lx, Ly]`` float64."""
    # Pairs whose correlations float32 does not tell apart are computed again, and those that
    # float64 does not tell apart, or given as bases, are warned of.
    sides, cuts = decomposed.sides, decomposed.cuts
    of_pairs = _with_errors(decomposed, top_k, report)
    if sides.x.bases is None and sides.y.bases is None:
        others, first = (sides.x, 0) if sides.same else (sides.y, len(sides.x))

        def exact(rows: list[int], columns: list[int]) -> Tensor:
            parts = []
            for side, places, at in ((sides.x, rows, 0), (others, columns, first)):
                kept = [cuts[at + i] for i in places]
                copies = Side(side.name, [side.layers[i].double() for i in places])
                bases, _ = decompose(None, copies, kept, sys.maxsize, standardize=standardize)
                parts.append((copies, bases, kept))
            (x, of_x, cuts_x), (y, of_y, cuts_y) = parts
            again = Sides(x, y, sides.bound)
            whole = DecomposedSides(again, [*of_x], [*of_y], cuts_x + cuts_y, sides.bound)
            return _with_errors(whole, top_k, lambda _: None)

        lost = of_pairs[..., 1] > TOLERANCE
        # Errors of float32 directions are told in the unit of the widest dtype.
        lost |= len({basis.vectors.dtype for basis in (*decomposed.x, *decomposed.y)}) > 1
        of_pairs = places_again(function, sides, of_pairs, lost, exact)
    _warn_tied(function, decomposed, of_pairs[..., 1])
    return of_pairs[..., 0]


def _with_errors(decomposed: DecomposedSides, top_k: TopK, report: Report) -> Tensor:
    """Return the values and their errors, ``[Lx, Ly, 2]``."""
    x, y = decomposed.vectors()
    weighted = decomposed.weighted_components()
    if top_k is None:
        left = max(decomposed.workspace - sum(components.nbytes for components in weighted), 1)
        return torch.stack(pwcca(x, weighted, y, left), -1)
    smaller = decomposed.smaller().clamp(min=1)
    return torch.stack(top_weighted(x, weighted, y, top_k, smaller, report), -1)


def _warn_tied(function: str, decomposed: DecomposedSides, errors: Tensor) -> None:
    """Warn once of the pairs whose values rounding decides."""
    sides, n = decomposed.sides, decomposed.sides.n
    if sides.same:
        errors = torch.maximum(errors, errors.T).triu(1)
        of = f"{len(errors) * (len(errors) - 1) // 2} pairs (X[i], X[j]), i < j,"
    else:
        of = f"{errors.numel()} pairs (X[i], Y[j])"
    count, largest, place = torch.stack(
        [(errors > TOLERANCE).sum(), errors.max(), errors.argmax()]
    ).tolist()  # one synchronisation with the device
    if not count:
        return
    i, j = divmod(int(place), errors.shape[1])
    message = (
        f"{function}: {int(count)} of {of} have canonical correlations that are equal up to "
        "rounding, so that the weights of their directions, and the values, follow rounding, the "
        f"most by about {largest:.0e} for {sides.x.label(i)} and "
        f"{(sides.x if sides.same else sides.y).label(j)}"
    )
    ranks_x, ranks_y = decomposed.ranks()
    short = (errors > TOLERANCE) & (ranks_x[:, None] + ranks_y > n)
    if bool(short.any()):
        # With more rows a layer may keep more components: its rank may be higher, and a share of
        # its variance may need more.
        most_each = _most_components(decomposed)
        across = len(ranks_y)
        most = most_each[: len(ranks_x), None] + most_each[-across:]
        message += (
            f"; layers of k_x + k_y > n = {n} components share dimensions, whose correlations of 1 "
            f"tie; truncate, or take at least {int(most[short].max()) + 1} rows"
        )
    warn_caller(message)


def _most_components(decomposed: DecomposedSides) -> Tensor:
    """Return the most components that each layer can keep however many rows there are."""
    both = decomposed.x + decomposed.y
    parts = [b.components if isinstance(b, Basis) else b.coordinates for b in both]
    most = [
        min(cut, part.shape[1]) if isinstance(cut, Integral) else part.shape[1]
        for cut, part in zip(decomposed.cuts, parts, strict=True)
    ]
    return torch.tensor(most, dtype=torch.float64, device=both[0].vectors.device)
