"""Truncated layers: the kept components alone, where a grid of large layers needs no spectrum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral

import torch
from torch import Tensor

from simcore._grid.basis import Columns, Factored
from simcore._grid.inputs import centred
from simcore._grid.progress import progress_bar
from simcore._grid.rank import COVARIANCE_GIVES, column_squares, entry_thresholds, rounding_unit
from simcore._grid.side import Side
from simcore._ops.leading import MOST_KEPT, Wanted, leading_eigenvectors
from simcore.basis import decompose

SMALLEST = 2048  # of the smaller side: smaller layers leave little to gain
GRAM_BLOCKS = 8
SAMPLE = 256  # rows that tell whether a share keeps few components


def truncated(
    function: str,
    side: Side,
    cuts: Sequence[float | int | None],
    bound: int,
    *,
    standardize: bool = False,
    progress: bool = False,
) -> tuple[list[Columns], int]:
    """Return the leading components of the side's layers, and the bytes that they leave."""
    # Bases that the side holds are truncated. float64 layers, small layers, and layers whose
    # leading components `leading_eigenvectors` does not prove are decomposed.
    found: dict[int, Factored] = {}
    if side.bases is None and any(map(_is_for_lanczos, side.layers, cuts)):
        with progress_bar(f"components of {side.name}", progress) as report:
            found = _leading(side.layers, cuts, standardize, bound, report)
    others = [i for i in range(len(side)) if i not in found]
    left = max(bound - sum(columns.nbytes for columns in found.values()), 1)
    if not others and len(side):
        return [found[i] for i in range(len(side))], left
    bases, left = decompose(
        function,
        side.part(others),
        [cuts[i] for i in others],
        left,
        standardize=standardize,
        progress=progress,
    )
    columns_of: dict[int, Columns] = {**found, **dict(zip(others, bases, strict=True))}
    return [columns_of[i] for i in range(len(side))], left


def working_bytes(n: int, p: int) -> int:
    """Return the bytes of one layer: four float64 copies, C, its factor, and the Lanczos space."""
    return 8 * (4 * n * p + 4 * min(n, p) ** 2)


def _leading(
    layers: Sequence[Tensor],
    cuts: Sequence[float | int | None],
    standardize: bool,
    bound: int,
    report: Callable[[float], None],
) -> dict[int, Factored]:
    """Return the proven components by the layers' numbers."""
    found: dict[int, Factored] = {}
    left = bound
    for i, (layer, cut) in enumerate(zip(layers, cuts, strict=True)):
        fits = working_bytes(*layer.shape) <= left
        if cut is not None and _is_for_lanczos(layer, cut) and fits:
            columns = _components(layer.detach(), cut, standardize)
            if columns is not None:
                found[i] = columns
                left -= columns.nbytes
        report((i + 1) / len(layers))
    return found


def _is_for_lanczos(layer: Tensor, cut: float | int | None) -> bool:
    smaller = min(layer.shape)
    if cut is None:
        return False
    few = cut <= MOST_KEPT * smaller if isinstance(cut, Integral) else cut < 1
    return layer.dtype != torch.float64 and smaller >= SMALLEST and bool(few)


def _components(layer: Tensor, cut: float | int, standardize: bool) -> Factored | None:
    """Return the leading components of a layer, or None where they are not proven."""
    n, p = layer.shape
    wanted = Wanted(cut, COVARIANCE_GIVES**2)
    if not _may_keep_few(layer, wanted, standardize):
        return None
    x = _columns(layer, standardize)
    covariance = _gram(x if p > n else x.mT)
    found = leading_eigenvectors(covariance, wanted)
    if found is None:
        return None
    values, vectors = found
    s = values.sqrt()
    if p > n:
        u, coordinates = vectors, vectors.mT @ x
        lengths = x.square().sum(0)
    else:
        # Rounding errors here would give a constant column variance.
        vectors.masked_fill_((covariance.diagonal() == 0)[:, None], 0.0)
        u, coordinates = x @ (vectors / s), s[:, None] * vectors.mT
        lengths = covariance.diagonal()
    squares = column_squares(layer, lengths, standardize=standardize)
    if bool((s <= entry_thresholds(coordinates, squares, rounding_unit(layer))).any()):
        return None
    return Factored(u.float().contiguous(), (coordinates / s[0]).float().contiguous())


def _columns(layer: Tensor, standardize: bool) -> Tensor:
    """Return the centred columns, float64, of a layer of a narrower type."""
    # No scaling is needed: float64 holds the squares of all float32 numbers.
    x = centred(layer)
    if standardize:
        deviation = x.square().mean(0).sqrt()
        x *= torch.where(deviation > 0, 1 / deviation, 0.0)
    return x


def _may_keep_few(layer: Tensor, wanted: Wanted, standardize: bool) -> bool:
    """Whether a sample of the rows keeps few components, as a share of all rows then may."""
    # The answer decides how long the layer takes, not what comes of it.
    if wanted.share is None:
        return True
    sample = _columns(layer[:: max(1, len(layer) // SAMPLE)], standardize)
    gram = _gram(sample)
    if not torch.isfinite(gram.trace()):
        return False
    values = torch.linalg.eigvalsh(gram).flip(0).clamp(min=0).cpu()
    return wanted.count(values, float(values.sum())) <= MOST_KEPT * min(layer.shape)


def _gram(x: Tensor) -> Tensor:
    m = len(x)
    gram = x.new_empty(m, m)
    height = -(-m // GRAM_BLOCKS)
    for start in range(0, m, height):
        end = min(start + height, m)
        torch.mm(x[start:end], x[:end].mT, out=gram[start:end, :end])
        gram[:start, start:end] = gram[start:end, :start].mT
    return gram
