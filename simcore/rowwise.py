"""Layers compared row by row: cosines of rows, and predictions of classifiers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from simcore._grid.derivative import with_gradients
from simcore._grid.finish import as_given, warn_caller
from simcore._grid.inputs import Array, Layers, check_finite
from simcore._grid.one_operator import always, one_operator
from simcore._grid.options import check_choice
from simcore._grid.progress import progress_bar
from simcore._grid.side import Side, Sides, read_sides

# Bytes of the rows of all layers that are compared at a time: they stay in cache. A device has
# larger blocks, because every block is some launches of kernels.
BLOCK_BYTES = {"cpu": 2**23, "cuda": 2**28}
SQUARED_SINE = 2.0**-49  # of an angle: a smaller one is rounding


@one_operator(derivative=always)
def cosine_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    form: str = "cosine",
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the mean cosine of the rows of two layers, of all layer pairs.

    ``mean_i cos(x_i, y_i)``: how much an example's vector changes its direction between two layers
    that share their coordinates, such as the layers of a residual stream. ``1 - cosine`` between
    neighbouring layers is the block influence of Men et al.

    Parameters
    ----------
    X, Y : sequence of ``[n, p]`` arrays, or one ``[L, n, p]`` array
        Representations as in `cka_grid`, all of the same width; they are not centred.
    form : {"cosine", "angular"}
        ``angular`` is ``mean_i arccos(cos(x_i, y_i)) / pi``, a distance: 0 for a layer with itself.
    max_memory : int, optional
        Bytes that may be allocated beyond the inputs; default a quarter of the free memory. The
        backward pass holds float64 gradients besides.
    progress : bool
        Show a progress bar on stderr.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        numpy if all inputs are numpy, else a torch tensor on the inputs' device. ``nan`` in the row
        and column of a layer of zeros, with one warning. Computed in float64. Angles near 0 are
        known to 1e-8. Differentiable in X and Y, once, in reverse mode. Where the gradient does not
        exist, it is 0: by rows of zeros, and of an angle between two rows that point in one
        direction or in opposite ones.

    Raises
    ------
    TypeError, ValueError
        As `cka_grid`; layers of different widths, the message naming two of them.

    Warns
    -----
    UserWarning
        Rows of zeros, which have no direction, are left out of the means.

    References
    ----------
    Men et al. 2024, *ShortGPT* (block influence); Gromov et al. 2024, *The unreasonable
    ineffectiveness of the deeper layers* (angular).

    Examples
    --------
    >>> import torch
    >>> from simcore import cosine_grid
    >>> x = torch.randn(3, 100, 8)
    >>> cosine_grid(x).diagonal().allclose(torch.ones(3, dtype=torch.float64))
    True
    """
    check_choice(form, "form", ("cosine", "angular"))
    given = read_sides(X, Y, "cosines", least_rows=1, max_memory=max_memory, differentiable=True)
    sides = given.detached()
    _check_widths(sides, "columns")
    _check_all_finite(sides)
    sums, counts = _zeros(sides), _zeros(sides)
    filled = []
    with progress_bar("cosine_grid", progress) as report:
        for x, y in _blocks(sides, report, pairs=1 if form == "cosine" else 3):
            x, some_x = _directions(x)
            y, some_y = (x, some_x) if sides.same else _directions(y)
            sums += _angles(x, y, some_x, some_y) if form == "angular" else _products(x, y)
            counts += some_x.double() @ some_y.double().T
            filled.append(torch.cat([some_x, some_y]).sum(1))
    gradients = functools.partial(_gradients, sides.max_memory, len(sides.x), form, counts)
    (grid,) = with_gradients(
        "cosine_grid", (sums / counts,), given.x.layers + given.y.layers, gradients
    )
    left = sides.n - torch.stack(filled).sum(0)
    _warn_zero_rows("cosine_grid", left, sides)
    empty = left == sides.n
    count_x, count_y = grid.shape
    if form == "angular":
        grid = sides.with_selves(grid, 0.0)
    else:
        grid = grid.clamp(-1.0, 1.0)
    return sides.finish(grid, "cosine_grid", empty[:count_x], empty[-count_y:], "no row but zeros")


def _zeros(sides: Sides) -> Tensor:
    shape = len(sides.x), len(sides.y) or len(sides.x)
    return torch.zeros(shape, dtype=torch.float64, device=sides.device)


def _check_widths(sides: Sides, what: str) -> None:
    """Raise a ValueError that names two layers of different widths, if there are such layers."""
    wanted = sides.x.layers[0].shape[1]
    for side in (sides.x, sides.y):
        for i, layer in enumerate(side.layers):
            if layer.shape[1] != wanted:
                raise ValueError(
                    f"{side.name}[{i}]: wanted {wanted} {what} as in {sides.x.name}[0], got "
                    f"{layer.shape[1]}"
                )


def _check_all_finite(sides: Sides) -> None:
    for side in (sides.x, sides.y):
        check_finite(side.layers, side.name)


def _blocks(
    sides: Sides, report: Callable[[float], None] | None, pairs: int, copies: int = 3
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield some rows of all layers of X, and of Y (or of X again), ``[L, rows, p]`` float64.

    ``pairs`` is the number of float64 arrays ``[rows, Lx, Ly]`` that the caller makes of them, and
    ``copies`` the number of blocks: these rows, what is divided by their lengths, and one more
    copy. Without ``report``, single rows are yielded where not even these fit.

    Raises
    ------
    ValueError
        One row does not fit into ``max_memory``.
    """
    x, y = sides.x.layers, sides.y.layers
    count_x, count_y = len(x), len(y) or len(x)
    row_bytes = 8 * (copies * (len(x) + len(y)) * x[0].shape[1] + pairs * count_x * count_y)
    fixed = 4 * 8 * count_x * count_y
    if report and fixed + row_bytes > sides.bound:
        raise ValueError(
            f"max_memory: wanted at least {fixed + row_bytes} bytes for one row of all layers, got "
            f"{sides.bound}"
        )
    most = min(sides.bound - fixed, BLOCK_BYTES[sides.device.type])
    step = max(1, most // row_bytes)
    for start in range(0, sides.n, step):
        rows = slice(start, start + step)
        block = torch.stack([layer[rows].double() for layer in x])
        yield block, torch.stack([layer[rows].double() for layer in y]) if y else block
        if report:
            report(min(1.0, (start + step) / sides.n))


def _directions(block: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows of length 1, zeros for rows of zeros, and which rows are not zeros ``[L, rows]``.

    Rows are divided by their largest entry first: their squares stay in the range of float64.
    """
    largest = block.abs().amax(-1, keepdim=True)
    some = largest > 0
    block = block / torch.where(some, largest, 1.0)
    lengths = torch.linalg.vector_norm(block, dim=-1, keepdim=True)
    return block.div_(torch.where(some, lengths, 1.0)), some.squeeze(-1)


def _products(x: Tensor, y: Tensor) -> Tensor:
    """Return the sums over rows of the cosines of all pairs of layers."""
    return x.flatten(1) @ y.flatten(1).T


def _angles(x: Tensor, y: Tensor, some_x: Tensor, some_y: Tensor) -> Tensor:
    """Return the sums over rows of ``arccos(cosine) / pi``; rows of zeros add nothing."""
    cosines = torch.bmm(x.transpose(0, 1), y.permute(1, 2, 0))  # [rows, Lx, Ly]
    angles = cosines.clamp_(-1.0, 1.0).arccos_().div_(torch.pi)
    angles *= some_x.T[:, :, None] & some_y.T[:, None, :]
    return angles.sum(0)


def _gradients(
    max_memory: int,
    count_x: int,
    form: str,
    counts: Tensor,
    layers: list[Tensor],
    grads: Sequence[Tensor],
    wanted: Sequence[bool],
) -> list[Tensor]:
    """Return the gradients by all layers, given those by the grid.

    The cosine c of two rows has the derivative ``(y - c x) / |x|``, with x and y at length 1. An
    angle has ``-1 / (pi sin)`` times as much, and 0 where the sine is rounding.
    """
    x, y = Side("X", layers[:count_x]), Side("Y", layers[count_x:])
    sides = Sides(x, y, max_memory)
    weights = torch.where(counts > 0, grads[0] / counts, 0.0)
    if sides.same:
        weights = weights + weights.T
    gradients = [torch.empty_like(layer, dtype=torch.float64) for layer in layers]
    start = 0
    for block_x, block_y in _blocks(sides, None, pairs=6, copies=8):
        rows = slice(start, start + block_x.shape[1])
        unit_x, _ = _directions(block_x)
        unit_y = unit_x if sides.same else _directions(block_y)[0]
        cosines = torch.bmm(unit_x.transpose(0, 1), unit_y.permute(1, 2, 0))  # [rows, Lx, Ly]
        slopes = weights.expand_as(cosines)
        if form == "angular":
            sines = 1 - cosines.square()
            known = sines > SQUARED_SINE
            slopes = torch.where(known, -slopes / torch.where(known, sines, 1.0).sqrt(), 0.0)
            slopes = slopes / torch.pi
        moved = _moved(slopes, cosines, unit_x, unit_y, block_x)
        if not sides.same:
            transposed = slopes.transpose(1, 2), cosines.transpose(1, 2)
            moved = [*moved, *_moved(*transposed, unit_y, unit_x, block_y)]
        for gradient, part in zip(gradients, moved, strict=True):
            gradient[rows] = part
        start = rows.stop
    return gradients


def _moved(
    slopes: Tensor, cosines: Tensor, unit_x: Tensor, unit_y: Tensor, x: Tensor
) -> Sequence[Tensor]:
    """Return ``sum_j slopes_ij (y_j - c_ij x_i) / |x_i|`` of some rows, for each layer i of X."""
    along = torch.bmm(slopes, unit_y.transpose(0, 1)).transpose(0, 1)  # [Lx, rows, p]
    back = (slopes * cosines).sum(2).T[..., None] * unit_x
    largest = x.abs().amax(-1, keepdim=True)  # squares of rows divided by it stay in range
    some = torch.where(largest > 0, largest, 1.0)
    lengths = largest * torch.linalg.vector_norm(x / some, dim=-1, keepdim=True)
    return torch.where(lengths > 0, (along - back) / lengths, 0.0).unbind()


def _warn_zero_rows(function: str, zeros: Tensor, sides: Sides) -> None:
    """Warn of rows of zeros; layers without another row have a warning of their own."""
    count = len(sides.x)
    counts = [
        f"{rows} of {sides.x.name}[{i}]" if i < count else f"{rows} of {sides.y.name}[{i - count}]"
        for i, rows in enumerate(zeros.tolist()[: count + len(sides.y)])
        if 0 < rows < sides.n
    ]
    if counts:
        warn_caller(f"{function}: rows of zeros are left out: {', '.join(counts)}")


@one_operator()
def disagreement_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the share of examples that two classifiers label differently, of all pairs.

    A distance: 0 for a model with itself, 1 if no example gets the same label. The label of an
    example is the place of its largest entry, the first such place if there are several.

    Parameters
    ----------
    X, Y : sequence of ``[n, classes]`` arrays, or one ``[L, n, classes]`` array
        Logits or probabilities of several models for the same examples in the same order.
        ``Y=None`` compares X with itself.
    max_memory : int, optional
        Bytes that may be allocated beyond the inputs; default a quarter of the free memory.
    progress : bool
        Show a progress bar on stderr.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        numpy if all inputs are numpy, else a torch tensor on the inputs' device. Not
        differentiable.

    Raises
    ------
    TypeError, ValueError
        As `cka_grid`; different numbers of classes, the message naming two layers.

    References
    ----------
    Klabunde et al. 2024; Madani et al. 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from simcore import disagreement_grid
    >>> a, b = np.eye(4), np.eye(4)[[0, 1, 3, 2]]
    >>> disagreement_grid([a], [b])
    array([[0.5]])
    """
    sides = read_sides(X, Y, "predictions", least_rows=1, max_memory=max_memory)
    _check_widths(sides, "classes")
    _check_all_finite(sides)
    held = (2 * (len(sides.x) + len(sides.y)) + 2 * (len(sides.y) or len(sides.x))) * 8 * sides.n
    if held > sides.bound:
        raise ValueError(f"max_memory: wanted at least {held} bytes for labels, got {sides.bound}")
    x = torch.stack([layer.argmax(1) for layer in sides.x.layers])
    y = torch.stack([layer.argmax(1) for layer in sides.y.layers]) if sides.y.layers else x
    rows = []
    with progress_bar("disagreement_grid", progress) as report:
        for i, labels in enumerate(x):
            rows.append((labels != y).sum(1))
            report((i + 1) / len(x))
    return as_given(torch.stack(rows).double() / sides.n, sides.from_numpy)


@one_operator()
def output_divergence_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the mean Jensen-Shannon divergence of two classifiers' probabilities, of all pairs.

    ``mean_i JSD(softmax(x_i), softmax(y_i))`` with logarithms of base 2: a distance in [0, 1], 0
    for a model with itself. Unlike `disagreement_grid` it sees how sure the models are.

    Parameters, return value and errors are as for `disagreement_grid`; X and Y hold logits. All
    is computed in float64.

    References
    ----------
    Klabunde et al. 2024; Lin 1991, *Divergence measures based on the Shannon entropy*.

    Examples
    --------
    >>> import numpy as np
    >>> from simcore import output_divergence_grid
    >>> sure, opposite = np.array([[99.0, 0.0]]), np.array([[0.0, 99.0]])
    >>> output_divergence_grid([sure], [opposite]).round(6)
    array([[1.]])
    """
    sides = read_sides(X, Y, "predictions", least_rows=1, max_memory=max_memory)
    _check_widths(sides, "classes")
    _check_all_finite(sides)
    total = _zeros(sides)
    with progress_bar("output_divergence_grid", progress) as report:
        for x, y in _blocks(sides, report, pairs=0):
            p = x.softmax(-1)
            total += _own_divergences(p) if sides.same else _divergences(p, y.softmax(-1))
    grid = (total / sides.n).clamp(0.0, 1.0)
    return as_given(sides.with_selves(grid, 0.0), sides.from_numpy)


def _divergences(p: Tensor, q: Tensor) -> Tensor:
    """Return the sums over rows of the Jensen-Shannon divergences of all pairs, base 2.

    ``JSD(p, q) = H(m) - (H(p) + H(q)) / 2`` with the entropy H and ``m = (p + q) / 2``.
    """
    means = (_negative_entropy(p)[:, None] + _negative_entropy(q)) / 2
    return means - torch.stack([_negative_entropy((one + q) / 2) for one in p])


def _own_divergences(p: Tensor) -> Tensor:
    """Return `_divergences` of p with itself, each pair computed once."""
    grid = p.new_zeros(len(p), len(p))
    for i in range(len(p) - 1):
        grid[i, i + 1 :] = _divergences(p[i : i + 1], p[i + 1 :])[0]
    return grid + grid.T


def _negative_entropy(p: Tensor) -> Tensor:
    """Return ``sum p log2(p)`` of each layer ``[L, rows, classes]``; 0 log 0 = 0."""
    return torch.xlogy(p, p).sum((1, 2)) / math.log(2)
