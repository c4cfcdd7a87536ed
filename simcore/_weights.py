"""Projection weights of canonical directions, and pairs whose equal correlations leave them open.

Directions of one correlation may be mixed. A mixture has other weights, so that the value follows
rounding, unless the value is this correlation.
"""

from __future__ import annotations

import sys
from numbers import Integral

import torch
from torch import Tensor

from simcore._decomposed import DecomposedSides
from simcore._grid.accuracy import TOLERANCE, places_again
from simcore._grid.basis import Basis
from simcore._grid.finish import warn_caller
from simcore._grid.side import Side, Sides
from simcore._ops.spectral import pwcca
from simcore._top import Report, TopK, top_weighted
from simcore.basis import decompose


def weighted_grid(
    function: str, decomposed: DecomposedSides, top_k: TopK, standardize: bool, report: Report
) -> Tensor:
    """Return the weighted means of the correlations, ``[Lx, Ly]`` float64.

    Pairs whose correlations float32 does not tell apart are computed again, and those that float64
    does not tell apart, or given as bases, are warned of.
    """
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
