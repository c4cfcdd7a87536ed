"""Representational similarity analysis as a grid over all layer pairs."""

from __future__ import annotations

import torch
from torch import Tensor

from simcore._grid.inputs import Array, Layers, check_on_cpu
from simcore._grid.one_operator import one_operator
from simcore._grid.options import check_choice
from simcore._grid.progress import progress_bar
from simcore._grid.side import Side, read_sides
from simcore._ops.hsic import hsic_terms
from simcore._ops.rsa import rank_moments, standardised_rows

# Dissimilarities of random rows vary by 1 / sqrt(p): beyond, little of that is left in float32.
WIDEST_FLOAT32 = 4096
# A layer's dissimilarities vary by this many times the variance that rounding gives them, or they
# are rounding as far as anyone knows: a correlation then loses up to a thirty-second to it.
LEAST_SPREAD = 16
# Covariances [Lx, Ly] and variances [Lx], [Ly]; of all layers, of x, then of y, the variance of the
# dissimilarities and what rounding explains of it.
Moments = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


@one_operator()
def rsa_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    correlation: str = "pearson",
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Correlation of the layers' representational dissimilarity matrices.

    A dissimilarity is 1 minus the Pearson correlation of two rows (examples); grids correlate the
    upper triangles. With ``correlation="pearson"`` no n x n matrix is formed: the correlations of
    rows are a Gram matrix, and sums over its entries are HSIC's.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations as in `cka_grid`, p_i of at least 2.
    correlation : {"pearson", "spearman"}
        ``spearman`` ranks the n (n - 1) / 2 dissimilarities of every layer in float64 (equal ones
        share their mean rank) and holds the ranks of all layers.
    max_memory : int, optional
        Bytes that may be allocated beyond the inputs; default a quarter of the free memory.
        ``pearson`` holds a standardised copy of every layer, ``spearman`` n^2 / 2 ranks of each, 4
        bytes a rank, and 12 n^2 bytes for every layer that is ranked at the same time.
    progress : bool
        Show a progress bar on stderr.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        numpy if all inputs are numpy, else a torch tensor. ``nan`` in the row and column of a layer
        that has a row without variance, or whose dissimilarities are equal but for rounding, with
        one warning. An entry counts as known to half the ``eps`` of its layer's dtype, relative to
        its magnitude; the dissimilarities' variance must be 16 times what such errors give them. So
        rows that all point in one direction are ``nan``: two columns the first of which is always
        larger, or a row times a positive factor. Rows of offsets that differ between columns point
        in nearly one direction: their dissimilarities are known as long as these offsets are below
        about 4e6 (float32), 500 (float16) or 60 (bfloat16) standard deviations. Pass data that was
        rounded to half precision in that dtype: as float32 it claims digits that it lost. Not
        differentiable.

    Raises
    ------
    TypeError, ValueError
        As `cka_grid`; fewer than 3 rows; layers or ranks that do not fit into `max_memory`.

    References
    ----------
    Kriegeskorte et al. 2008.

    Examples
    --------
    >>> import torch
    >>> from simcore import rsa_grid
    >>> x = torch.randn(30, 8)
    >>> float(rsa_grid([x], [2 * x + 1], correlation="spearman"))
    1.0
    """
    check_choice(correlation, "correlation", ("pearson", "spearman"))
    sides = read_sides(X, Y, "a dissimilarity matrix", least_rows=3, max_memory=max_memory)
    check_on_cpu(sides.x.layers[0], "X[0]", "rsa_grid")
    _check_widths(sides.x)
    _check_widths(sides.y)
    x, y = sides.x.layers, sides.y.layers
    with progress_bar("rsa_grid", progress):
        if correlation == "pearson":
            xy, xx, yy, spread, rounding = _pearson_moments(x, y, sides.bound)
        else:
            xy, xx, yy, spread, rounding = rank_moments(x, y, sides.bound)
    # False where a comparison meets nan: a constant row.
    defined = (spread > LEAST_SPREAD * rounding) & ((torch.cat([xx, yy]) if y else xx) > 0)
    defined_x, defined_y = defined[: len(x)], defined[len(x) :] if y else defined
    grid = (xy / torch.sqrt(xx[:, None] * yy[None, :])).clamp(-1.0, 1.0)
    why = "no variance in a row or between the dissimilarities beyond rounding"
    return sides.finish(grid, "rsa_grid", ~defined_x, ~defined_y, why)


def _computed_in(layer: Tensor) -> torch.dtype:
    wide = layer.shape[1] > WIDEST_FLOAT32
    return torch.float64 if wide or layer.dtype == torch.float64 else torch.float32


def _check_widths(side: Side) -> None:
    for i, layer in enumerate(side.layers):
        if layer.shape[1] < 2:
            raise ValueError(
                f"{side.name}[{i}]: wanted at least 2 columns to correlate rows, got 1"
            )


def _pearson_moments(x: list[Tensor], y: list[Tensor], bound: int) -> Moments:
    """Moments of the dissimilarities, each layer's in units of the mean of its halves.

    With c_i and a_i = |c_i|^2 / 2 of `standardised_rows`, dissimilarities are
    ``a_i + a_j - c_i'c_j``. Rows of ``c c'`` sum to 0, so the sum over i, j of products of two
    layers' dissimilarities is that of their ``c c'``, which is HSIC, plus terms in a alone.
    """
    layers = x + y
    n, count = len(x[0]), len(x)
    held = sum(layer.numel() * _computed_in(layer).itemsize for layer in layers)
    if 2 * held > bound:  # as much again for the products
        raise ValueError(
            f"max_memory: wanted at least {2 * held} bytes for standardised copies of the layers, "
            f"got {bound}"
        )
    names = [f"X[{i}]" for i in range(count)] + [f"Y[{i}]" for i in range(len(y))]
    standardised = [
        standardised_rows(layer, _computed_in(layer), name)
        for layer, name in zip(layers, names, strict=True)
    ]
    rows, halves, rounding = zip(*standardised, strict=True)
    xy, xx, yy = hsic_terms(
        list(rows[:count]), list(rows[count:]), "linear", "biased", 1.0, "auto", bound - held
    )
    a = torch.stack(halves)
    unit = a.mean(1)
    v = a - unit[:, None]
    first = slice(count)
    second = slice(count, None) if y else first

    def moment(hsic: Tensor, products: Tensor, units: Tensor) -> Tensor:
        total = (n - 1.0) ** 2 * hsic + 2.0 * n * products
        return (total / units - 4.0 * n * n / (n - 1.0)) / (n * (n - 1.0))

    xx = moment(xx, v[first].square().sum(1), unit[first].square())
    yy = moment(yy, v[second].square().sum(1), unit[second].square())
    # Sums of products as large as the squared mean: their rounding is no variance.
    eps = torch.tensor([torch.finfo(_computed_in(layer)).eps for layer in layers])
    return (
        moment(xy, v[first] @ v[second].T, unit[first][:, None] * unit[second]),
        xx,
        yy,
        torch.cat([xx, yy]) if y else xx,
        torch.stack(rounding) / unit.square() + eps,
    )
