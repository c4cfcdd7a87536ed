"""Similarity of layers whose neurons are matched with each other, or rotated to each other."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor

from simcore._grid.finish import warn_caller
from simcore._grid.inputs import Array, Layers, check_finite, on_host
from simcore._grid.one_operator import one_operator
from simcore._grid.options import check_choice
from simcore._grid.progress import progress_bar
from simcore._grid.scale import in_range
from simcore._grid.side import Sides, read_sides
from simcore._ops.neurons import match_neurons
from simcore._ops.spectral import aligned_cosines
from simcore._optional import import_optional

MATCHINGS = ("best", "one-to-one", "transport")
SCORES = ("correlation", "distance", "angular")
# The scores that are defined for each matching.
DEFINED = {
    "best": ("correlation",),
    "one-to-one": SCORES,
    "transport": ("correlation", "distance"),
}
COPIES = 6  # float64 arrays of the size of a matrix of costs that transport of a pair holds
PIVOTS = 10**9  # POT stops at 1e5 unless told otherwise, and then its plan is not the best one


@one_operator()
def matching_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    matching: str = "one-to-one",
    score: str = "correlation",
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the similarity, or the distance, of layers with matched neurons, for all layer pairs.

    ========== =========== ========================================================================
    matching   score       value
    ========== =========== ========================================================================
    best       correlation mean over the neurons of the largest correlation with a neuron of the
                           other layer, of both layers (soft correlation match)
    one-to-one correlation mean correlation over the best assignment of the ``min(p, q)`` neurons
                           (hard correlation match)
    one-to-one distance    ``min_P ||X - Y P||_F`` over permutations P, the narrower layer padded
                           with columns of zeros (permutation Procrustes)
    one-to-one angular     the least angle between X and Y P, in radians
    transport  correlation ``max sum T_ij r_ij`` over plans T whose rows sum to 1/p and whose
                           columns sum to 1/q (soft matching)
    transport  distance    ``sqrt(min sum T_ij ||x_i - y_j||^2)``
    ========== =========== ========================================================================

    Correlations are Pearson's, with their signs. Distances and angles are those of the layers as
    they are, not centred. Correlations are similarities: 1 is a layer with itself; distances and
    angles are 0.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations as in `cka_grid`. ``Y=None`` compares X with itself at half the
        cost: all of these values are symmetric.
    matching : {"one-to-one", "best", "transport"}
        For layers of equal width ``transport`` is an assignment. Layers of different widths need
        the package POT: ``pip install POT``.
        Assignments and transport of layers on a CUDA device are solved by the host.
    score : {"correlation", "distance", "angular"}
        ``angular`` is for ``one-to-one`` alone, ``distance`` not for ``best``.
    max_memory : int, optional
        Bytes that may be allocated beyond the inputs; default a quarter of the free memory. The
        matrix of at least one pair is held, on a CUDA device also a copy of every layer.
    progress : bool
        Show a progress bar on stderr.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        numpy if all inputs are numpy, else a torch tensor. ``nan``, with one warning, for layers
        without variance (correlation) or of zeros (angular). Not differentiable.

    Raises
    ------
    TypeError, ValueError
        As `cka_grid`; fewer than 2 rows for correlations; a score that the matching does not have.
    ImportError
        POT is missing, and widths differ.

    Warns
    -----
    UserWarning
        Neurons without variance are left out of correlations; the message counts them.

    Notes
    -----
    Assignments of float32 layers are made from float32 products of centred columns: another
    assignment may be chosen whose total is as good up to their rounding. Distances are then
    computed in float64 from the layers themselves: a layer and the same neurons in another order
    are 0 apart, unless two neurons are so alike that rounding swaps them.

    References
    ----------
    Correlations: Li et al. 2016, *Convergent learning*. Distances and angles: Williams et al. 2021,
    *Generalized shape metrics*. Transport: Khosla and Williams 2024, *Soft matching distance*.

    Examples
    --------
    >>> import torch
    >>> from simcore import matching_grid
    >>> x = torch.randn(100, 8, dtype=torch.float64)
    >>> float(matching_grid([x], [x[:, torch.randperm(8)]], score="distance"))
    0.0
    """
    check_choice(matching, "matching", MATCHINGS)
    check_choice(score, "score", SCORES)
    if score not in DEFINED[matching]:
        wanted = " or ".join(map(repr, DEFINED[matching]))
        raise ValueError(f"score: wanted {wanted} for matching {matching!r}, got {score!r}")
    correlates = score == "correlation"
    sides = read_sides(
        X, Y, "correlations" if correlates else "distances", least_rows=1 + correlates,
        max_memory=max_memory,
    )  # fmt: skip
    x, y, left = sides.x.layers, sides.y.layers, sides.max_memory
    if correlates:
        scaled = in_range(x + y, columns=True)
        x, y = scaled.layers[: len(x)], scaled.layers[len(x) :]
        left = scaled.workspace(left)
    with progress_bar("matching_grid", progress) as report:
        if matching != "transport":
            grid = match_neurons(x, y, matching, score, left)
        else:
            grid = _transport(x, y, score, left or sides.bound, report)
    if not correlates:
        grid = sides.with_zeros(grid)
    both = _undefined(sides.x.layers + sides.y.layers, score)
    if correlates:
        _warn_constant(sides)
    of_y = both if sides.same else both[len(x) :]
    why = "no variance" if correlates else "no entry but zeros"
    return sides.finish(grid, "matching_grid", both[: len(x)], of_y, why)


def _varying(layer: Tensor) -> Tensor:
    """Return which neurons have a variance, ``[p]`` bool."""
    low, high = torch.aminmax(layer, dim=0)
    return low != high


def _undefined(layers: list[Tensor], score: str) -> Tensor:
    """Return which layers have no value, ``[L]`` bool."""
    if score == "correlation":
        return torch.stack([~_varying(layer).any() for layer in layers])
    if score == "angular":
        return torch.stack([~layer.any() for layer in layers])
    return torch.zeros(len(layers), dtype=torch.bool, device=layers[0].device)


def _counts(layers: list[Tensor], score: str) -> list[int]:
    """Return how many neurons of each layer are matched; one wait for the device."""
    if score != "correlation":
        return [layer.shape[1] for layer in layers]
    found: list[int] = torch.stack([_varying(layer).sum() for layer in layers]).tolist()
    return found


def _warn_constant(sides: Sides) -> None:
    """Warn once of the neurons without variance in layers that have others."""
    partly = []
    names = [f"{side.name}[{i}]" for side in (sides.x, sides.y) for i in range(len(side))]
    layers = sides.x.layers + sides.y.layers
    for name, layer, kept in zip(names, layers, _counts(layers, "correlation"), strict=True):
        if 0 < kept < layer.shape[1]:
            partly.append(f"{layer.shape[1] - kept} of {name}")
    if partly:
        warn_caller(f"matching_grid: neurons without variance are left out: {', '.join(partly)}")


def _transport(
    x: list[Tensor], y: list[Tensor], score: str, bound: int, report: Callable[[float], None]
) -> Tensor:
    """Return the grid of optimal transport; an empty ``y`` compares x with itself."""
    others = y or x
    grid = torch.full((len(x), len(others)), torch.nan, dtype=torch.float64, device=x[0].device)
    counts = _counts(x + y, score)
    sizes = [counts[: len(x)], counts[len(x) :] if y else counts]
    for size in sorted(set(sizes[0]) & set(sizes[1]) - {0}):
        rows, columns = ([i for i, s in enumerate(side) if s == size] for side in sizes)
        values = match_neurons(
            [x[i] for i in rows], [y[j] for j in columns] if y else [], "one-to-one", score, bound
        )
        if score == "distance":
            values = values / size**0.5
        for i, row in zip(rows, values, strict=True):
            for j, value in zip(columns, row, strict=True):
                grid[i, j] = value
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
        optimal[i, j] = _optimal(on_cpu[0][i], on_cpu[1][j], score, bound, library)
        if not y:
            optimal[j, i] = optimal[i, j]
        report(done / len(pairs))
    optimal = optimal.to(grid.device)
    return torch.where(optimal.isnan(), grid, optimal)


def _copies(x: list[Tensor], y: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return both sides on the CPU, where POT computes; one wait for the device."""
    if x[0].device.type == "cpu":
        return x, y
    dtype = functools.reduce(torch.promote_types, [layer.dtype for layer in x + y])
    found = on_host([layer.to(dtype) for layer in x + y])
    return found[: len(x)], found[len(x) :]


def _pot() -> ModuleType:
    return import_optional("ot", "matching: 'transport' between layers of different widths")


def _optimal(x: Tensor, y: Tensor, score: str, bound: int, library: ModuleType) -> float:
    """Return the value of one pair by the network simplex of POT, in float64."""
    needed = 8 * (COPIES * x.shape[1] * y.shape[1] + 3 * (x.numel() + y.numel()))
    if needed > bound:
        raise ValueError(
            f"max_memory: wanted at least {needed} bytes for the transport of one pair, got {bound}"
        )
    unit = 1.0
    if score == "correlation":
        a, b = (_standardised(layer) for layer in (x, y))
        costs = -(a.T @ b).clamp(-1.0, 1.0)
    else:
        unit = max(float(x.abs().max()), float(y.abs().max())) or 1.0
        a, b = x.double() / unit, y.double() / unit
        # Of differences: neither an offset nor a large column costs digits.
        costs = torch.cdist(a.T, b.T, compute_mode="donot_use_mm_for_euclid_dist").square()
    weights = [torch.full((size,), 1 / size, dtype=torch.float64) for size in costs.shape]
    marginals = [weight.numpy() for weight in weights]
    total = float(library.emd2(*marginals, costs.numpy(), numItermax=PIVOTS))
    return -total if score == "correlation" else unit * max(total, 0.0) ** 0.5


def _standardised(layer: Tensor) -> Tensor:
    """Return the neurons that vary, centred and of unit length, in float64."""
    wide = layer[:, _varying(layer)].double()
    wide = wide - wide[:1]
    wide = wide - wide.mean(0)
    return wide / torch.linalg.vector_norm(wide, dim=0)


@one_operator()
def aligned_cosine_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the mean cosine of the rows of two layers after the best rotation, of all pairs.

    ``mean_i cos(x_i Q, y_i)`` with ``Q = U V'`` of ``X'Y = U S V'``, the rotation that brings X
    nearest to Y (orthogonal Procrustes). The layers are not centred, and the narrower one is padded
    with columns of zeros.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations as in `cka_grid`. ``Y=None`` compares X with itself at half the
        cost: the value is symmetric.
    max_memory : int, optional
        Bytes that may be allocated beyond the inputs; default a quarter of the free memory. Each
        pair holds a few copies of both of its layers.
    progress : bool
        Show a progress bar on stderr.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        1 for a layer with itself, also after a rotation. numpy if all inputs are numpy, else a
        torch tensor. ``nan``, with one warning, for layers of zeros. Not differentiable.

    Raises
    ------
    TypeError, ValueError
        As `cka_grid`.

    Warns
    -----
    UserWarning
        Rows of zeros, which have no direction, are left out of the means.

    Notes
    -----
    Directions with singular values of ``X'Y`` below 4 eps of the largest count 0: there the
    rotation is decided by rounding, or is arbitrary. Pairs of float32 layers are computed in
    float32. If a common offset of all rows is so large that the other directions have singular
    values near eps of the largest, these add at most about p eps to a value.

    References
    ----------
    Klabunde et al. 2024.

    Examples
    --------
    >>> import torch
    >>> from simcore import aligned_cosine_grid
    >>> x = torch.randn(100, 8)
    >>> rotation, _ = torch.linalg.qr(torch.randn(8, 8))
    >>> bool((1 - aligned_cosine_grid([x], [x @ rotation])).abs() < 1e-5)
    True
    """
    sides = read_sides(X, Y, "cosines", least_rows=1, max_memory=max_memory)
    for side in (sides.x, sides.y):
        check_finite(side.layers, side.name)
    with progress_bar("aligned_cosine_grid", progress):
        grid = aligned_cosines(sides.x.layers, sides.y.layers, sides.bound)
    empty = _warn_zero_rows(sides)
    count = len(sides.x)
    of_y = empty if sides.same else empty[count:]
    return sides.finish(grid, "aligned_cosine_grid", empty[:count], of_y, "no row but zeros")


def _warn_zero_rows(sides: Sides) -> Tensor:
    """Warn once of rows of zeros in layers that have others; return which layers have none."""
    layers = sides.x.layers + sides.y.layers
    names = [f"{side.name}[{i}]" for side in (sides.x, sides.y) for i in range(len(side))]
    zeros = torch.stack([(~layer.any(dim=1)).sum() for layer in layers])
    partly = [
        f"{count} of {name}"
        for name, count in zip(names, zeros.tolist(), strict=True)
        if 0 < count < sides.n
    ]
    if partly:
        warn_caller(f"aligned_cosine_grid: rows of zeros are left out: {', '.join(partly)}")
    return zeros == sides.n
