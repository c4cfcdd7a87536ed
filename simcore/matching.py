"""Similarity of layers whose neurons are matched with each other, or rotated to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from simcore._grid.accuracy import ASSIGNED_APART, TOLERANCE, pairs_again, places_again
from simcore._grid.finish import as_given, warn_caller, warn_left_out
from simcore._grid.inputs import Array, Layers
from simcore._grid.one_operator import empty_grid, one_operator
from simcore._grid.options import check_choice
from simcore._grid.progress import progress_bar
from simcore._grid.scale import in_range
from simcore._grid.side import Sides, read_sides
from simcore._ops.columns import varying
from simcore._ops.neurons import match_neurons
from simcore._ops.neurons_composed import assigned_neurons, inverse
from simcore._ops.spectral import aligned_cosines
from simcore._transport import Plans, in_rows, neuron_counts, transport

Matching = Literal["best", "one-to-one", "transport"]
Assigning = Literal["one-to-one", "transport"]
Score = Literal["correlation", "distance", "angular"]
# The scores that are defined for each matching.
DEFINED = {
    "best": ("correlation",),
    "one-to-one": get_args(Score),
    "transport": ("correlation", "distance"),
}


class Matches(NamedTuple):
    """The matches of neurons, as `neuron_matches` finds them."""

    values: Array  # [len(X), len(Y)]
    matches: Sequence[Sequence[Array]]  # of X[i] with Y[j]


def _empty(
    like: Tensor,
    X: Sequence[Array],
    Y: Sequence[Array] | None = None,
    *,
    matching: Matching = "one-to-one",
    **_: Any,
) -> list[Tensor]:
    """Return the uninitialised grid, and the matches of its pairs, row by row."""
    grids = empty_grid(like, X, Y)
    pairs = [(x, y) for x in X for y in (X if Y is None else Y)]
    if matching == "transport":
        shapes = [(x.shape[1], y.shape[1]) for x, y in pairs]
        return grids + [like.new_empty(shape, dtype=torch.float64) for shape in shapes]
    return grids + [like.new_empty(x.shape[1], dtype=torch.int64) for x, _y in pairs]


def _rebuilt(outputs: list[Tensor], X: Layers, *_: Any, **__: Any) -> Matches:
    grid, *matches = outputs
    columns = len(matches) // len(X)
    return Matches(grid, [matches[i * columns : (i + 1) * columns] for i in range(len(X))])


@one_operator()
def matching_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    matching: Matching = "one-to-one",
    score: Score = "correlation",
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

    Correlations are Pearson's, with their signs. Distances and angles take the layers as
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
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`. The matrix of at least one pair is
        held, on a CUDA device also a copy of every layer.

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
    computed in float64 from the layers themselves. Layers that are nearly equal, or have sinks in
    common, are also assigned in float64: a layer and the same neurons in another order are 0 apart.

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
    check_choice(matching, "matching", Matching)
    return _matched("matching_grid", X, Y, matching, score, max_memory, progress).values


@one_operator(_empty, _rebuilt)
def neuron_matches(
    X: Layers,
    Y: Layers | None = None,
    *,
    matching: Assigning = "one-to-one",
    score: Score = "correlation",
    max_memory: int | None = None,
    progress: bool = False,
) -> Matches:
    """Find the assignments, or the transport plans, whose scores `matching_grid` holds.

    Parameters and errors are as for `matching_grid`, without the matching ``best``, which assigns
    no neurons: `neuron_partners` finds the best ones.

    Returns
    -------
    values : array ``[len(X), len(Y)]``, float64
        `matching_grid`. Both are the fields of a named tuple.
    matches : list of lists of arrays
        ``matches[i][j]`` is the match whose score is ``values[i, j]``. ``one-to-one``: int64
        ``[p_i]``, the neuron of ``Y[j]`` that each neuron of ``X[i]`` is assigned to; -1 for
        none. ``transport``: float64 ``[p_i, q_j]``, the plan; 0 for neurons without variance.

    Examples
    --------
    >>> import torch
    >>> from simcore import neuron_matches
    >>> x = torch.randn(50, 4)
    >>> neuron_matches([x], [x[:, [2, 0, 1, 3]]]).matches[0][0]
    tensor([1, 2, 0, 3])
    """
    check_choice(matching, "matching", Assigning)
    return _matched("neuron_matches", X, Y, matching, score, max_memory, progress, keep=True)


def _matched(
    function: str,
    X: Layers,
    Y: Layers | None,
    matching: str,
    score: str,
    max_memory: int | None,
    progress: bool,
    keep: bool = False,
) -> Matches:
    """Return the values, and the matches if they are to be kept."""
    check_choice(score, "score", Score)
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
    matches: list[list[Tensor]] = []
    with progress_bar(function, progress) as report:
        if matching == "transport":
            plans: Plans | None = {} if keep else None
            grid = transport(x, y, score, left or sides.bound, report, plans)
            matches = in_rows(plans, x, y or x) if plans is not None else []
        elif keep:
            grid, matches = assigned_neurons(x, y, score, left)
        else:
            grid = match_neurons(x, y, matching, score, left)
        if not correlates:
            grid = _near_again(function, sides, grid, matches, matching, score, left)
    if not correlates:
        grid = sides.with_selves(grid, 0.0)
    both = _undefined(sides.layers, score)
    if correlates:
        widths = [layer.shape[1] for layer in sides.layers]
        left_out = torch.tensor(widths) - torch.tensor(neuron_counts(sides.layers, score))
        warn_left_out(function, "neurons without variance", sides.labels, left_out, widths)
    why = "no variance" if correlates else "no entry but zeros"
    finished = sides.finish(grid, function, both[: len(x)], both[sides.columns], why)
    kept = [[as_given(match, sides.from_numpy) for match in row] for row in matches]
    return Matches(finished, kept)


def _near_again(
    function: str,
    sides: Sides,
    grid: Tensor,
    matches: list[list[Tensor]],
    matching: str,
    score: str,
    left: int,
) -> Tensor:
    """Return the distances with those that are small beside the layers assigned in float64.

    The ``matches`` of these pairs are replaced, if there are any. Transport between layers of
    different widths has costs of float64 already.
    """
    x, y = sides.x.layers, sides.y.layers or sides.x.layers
    squares = grid.square()
    transported = matching == "transport"
    if transported:  # of layers of one width: an assignment, whose mean the value is
        widths = torch.tensor(
            [[a.shape[1] if a.shape[1] == b.shape[1] else torch.inf for b in y] for a in x]
        )
        squares = squares * widths.to(squares)
    if score == "distance":
        norms = [
            torch.stack([torch.linalg.vector_norm(layer, dtype=torch.float64) for layer in side])
            for side in (x, y)
        ]
        squares = squares / norms[0][:, None] / norms[1]

    def of_places(rows: list[int], columns: list[int]) -> Tensor:
        layers = [x[i].double() for i in rows], [y[j].double() for j in columns]
        plans: Plans | None = {} if matches else None
        if transported:
            again = transport(*layers, score, left or sides.bound, lambda share: None, plans)
            found = in_rows(plans, *layers) if plans is not None else []
        elif matches:
            again, found = assigned_neurons(*layers, score, left)
        else:
            return match_neurons(*layers, "one-to-one", score, left)
        for i, of_row in zip(rows, found, strict=bool(matches)):
            for j, match in zip(columns, of_row, strict=True):
                matches[i][j] = match
                if sides.same:
                    matches[j][i] = match.T if transported else inverse(match, y[j].shape[1])
        return again

    near = squares < ASSIGNED_APART
    return places_again(function, sides, grid, near, of_places, symmetric=True)


def _undefined(layers: list[Tensor], score: str) -> Tensor:
    """Return which layers have no value, ``[L]`` bool."""
    if score == "correlation":
        return torch.stack([~varying(layer).any() for layer in layers])
    if score == "angular":
        return torch.stack([~layer.any() for layer in layers])
    return torch.zeros(len(layers), dtype=torch.bool, device=layers[0].device)


@one_operator()
def aligned_cosine_grid(
    X: Layers, Y: Layers | None = None, *, max_memory: int | None = None, progress: bool = False
) -> Array:
    """Compute the mean cosine of the rows of two layers after the best rotation, of all pairs.

    ``mean_i cos(x_i Q, y_i)`` with ``Q = U V'`` of ``X'Y = U S V'``, the rotation that brings X
    nearest to Y (orthogonal Procrustes). The layers are not centred, and the narrower one is padded
    with columns of zeros.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations and errors as in `cka_grid`. ``Y=None`` compares X with itself at half the
        cost: the value is symmetric.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`. Each pair holds a few copies of both
        of its layers.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        1 for a layer with itself, also after a rotation. numpy if all inputs are numpy, else a
        torch tensor. ``nan``, with one warning, for layers of zeros. Not differentiable.

    Warns
    -----
    UserWarning
        Rows of zeros, which have no direction, are left out of the means. Values that rounding
        decides even in float64 are counted.

    Notes
    -----
    Directions with singular values of ``X'Y`` below 4 eps of the largest count 0: there the
    rotation is decided by rounding, or is arbitrary. Pairs of float32 layers are computed in
    float32, and again in float64 where the rounding of their product may turn directions that
    matter to the rows: a few huge rows or one huge column leave the rest small singular values.

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
    sides.check_finite()

    def with_errors(x: list[Tensor], y: list[Tensor]) -> Tensor:
        return torch.stack(aligned_cosines(x, y, sides.bound), -1)  # [Lx, Ly, 2]

    with progress_bar("aligned_cosine_grid", progress):
        both = with_errors(sides.x.layers, sides.y.layers)
        lost = both[..., 1] > TOLERANCE
        both = pairs_again("aligned_cosine_grid", sides, both, lost, with_errors, symmetric=True)
    grid, errors = sides.with_selves(both[..., 0], 1.0), both[..., 1].nan_to_num()
    errors = sides.with_selves(errors, 0.0)
    if float(errors.max()) > TOLERANCE:
        i, j = divmod(int(errors.argmax()), errors.shape[1])
        other = sides.x if sides.same else sides.y
        warn_caller(
            f"aligned_cosine_grid: {int((errors > TOLERANCE).sum())} of {errors.numel()} values "
            f"are decided by rounding even in float64, by about {float(errors.max()):.0e} for "
            f"{sides.x.label(i)} and {other.label(j)}: a few rows or columns are too long"
        )
    zeros = torch.stack([(~layer.any(dim=1)).sum() for layer in sides.layers])
    rows = [sides.n] * len(zeros)
    warn_left_out("aligned_cosine_grid", "rows of zeros", sides.labels, zeros, rows)
    empty = zeros == sides.n
    of_x, of_y = empty[: len(sides.x)], empty[sides.columns]
    return sides.finish(grid, "aligned_cosine_grid", of_x, of_y, "no row but zeros")
