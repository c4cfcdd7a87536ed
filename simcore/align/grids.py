"""Errors of maps from every layer of X to every layer of Y."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simcore._grid.inputs import Array, Groups, Layers, group_numbers, listed
from simcore._grid.memory import memory_bound
from simcore._grid.options import check_choice, check_count, check_max_memory
from simcore._grid.progress import progress_bar
from simcore.align._base import AlignmentError, checked_pair, error_of_rows
from simcore.align.linear import LeastSquares, check_least_squares
from simcore.align.pairs import Method, align_pairs, check_groups, split_order

AT_ONCE = 16  # maps that are fitted before the first of them is thrown away


@dataclass(frozen=True)
class GridErrors:
    """The errors of the maps from every layer of X to every layer of Y.

    Attributes
    ----------
    train, heldout : list of lists of AlignmentError
        ``train[i][j]`` is the error of the map from ``X[i]`` to ``Y[j]`` on the rows of the fit,
        and ``heldout[i][j]`` its error on rows that the fit has not seen.
    """

    train: list[list[AlignmentError]]
    heldout: list[list[AlignmentError]]


def align_grid(
    X: Layers,
    Y: Layers,
    method: Method = "linear",
    *,
    X_heldout: Layers | None = None,
    Y_heldout: Layers | None = None,
    groups_heldout: Groups | None = None,
    heldout: float = 0.2,
    split_seed: int = 0,
    at_once: int | None = None,
    max_memory: int | None = None,
    progress: bool = False,
    **params: Any,
) -> GridErrors:
    """Return the errors of the maps from every layer of X to every layer of Y.

    `align_pairs` returns the same maps; here they are thrown away,
    so that memory does not grow with their number, and "linear" factors every layer of X once for
    all layers of Y.

    Parameters
    ----------
    X, Y : sequence, or dictionary, of ``[n, p_i]`` and of ``[n, q_j]`` arrays
        All layers have the same n rows.
    method : str
        The kind of aligner; see `METHODS`.
    X_heldout, Y_heldout, groups_heldout, heldout, split_seed
        As in `align_pairs`.
    at_once : int, optional
        Largest number of maps that are fitted together; default 16. Not for "linear".
    max_memory : int, optional
        Bytes that "linear" may take for the layers of Y that it maps to together; default a quarter
        of the free memory. One layer is mapped to in any case.
    progress : bool
        Show a progress bar on stderr.
    **params
        Parameters of the aligner.

    Returns
    -------
    GridErrors

    Raises
    ------
    TypeError, ValueError
        As `align_pairs`, or different n.

    Examples
    --------
    >>> import torch
    >>> from simcore.align import align_grid
    >>> x = torch.randn(3, 100, 8)
    >>> errors = align_grid(list(x), list(x @ torch.randn(8, 8)), heldout=0.5)
    >>> [errors.heldout[i][i].relative < 1e-3 for i in range(3)]
    [True, True, True]
    """
    check_choice(method, "method", Method)
    at_once = AT_ONCE if at_once is None else check_count(at_once, "at_once")
    bound = check_max_memory(max_memory)
    x, y = _sides(X, Y, ("X", "Y"))
    if (X_heldout is None) != (Y_heldout is None):
        raise ValueError("X_heldout, Y_heldout: wanted both or neither, got one")
    if X_heldout is None or Y_heldout is None:
        check_groups(groups_heldout, None)
        kept, judged = split_order(x[0], heldout, split_seed)
        x, x_judged = [side[kept] for side in x], [side[judged] for side in x]
        y, y_judged = [side[kept] for side in y], [side[judged] for side in y]
    else:
        x_judged, y_judged = _sides(X_heldout, Y_heldout, ("X_heldout", "Y_heldout"))
        _check_counts(x, x_judged, "X_heldout")
        _check_counts(y, y_judged, "Y_heldout")
        check_groups(groups_heldout, x_judged[0])
    with progress_bar(f"align_grid, {method}", progress) as report:
        if method == "linear" and not params:
            numbers = group_numbers(groups_heldout, len(x_judged[0]))
            errors = _linear(x, y, x_judged, y_judged, numbers, memory_bound(bound, x[0]), report)
        else:
            params = {**params, "groups_heldout": groups_heldout}
            errors = _by_pairs(x, y, x_judged, y_judged, method, at_once, params, report)
    return GridErrors(*errors)


Errors = list[list[AlignmentError]]


def _by_pairs(
    x: list[Tensor],
    y: list[Tensor],
    x_judged: list[Tensor],
    y_judged: list[Tensor],
    method: Method,
    at_once: int,
    params: dict[str, Any],
    report: Any,
) -> tuple[Errors, Errors]:
    train: dict[tuple[int, int], AlignmentError] = {}
    heldout: dict[tuple[int, int], AlignmentError] = {}
    for pairs in _chunks(x, y, at_once):
        xs, xs_judged = ([side[i] for i, _ in pairs] for side in (x, x_judged))
        ys, ys_judged = ([side[j] for _, j in pairs] for side in (y, y_judged))
        results = align_pairs(xs, ys, method, X_heldout=xs_judged, Y_heldout=ys_judged, **params)
        for pair, result in zip(pairs, results, strict=True):
            train[pair], heldout[pair] = result.train, result.heldout
        report(len(train) / (len(x) * len(y)))
    return _table(train, len(x), len(y)), _table(heldout, len(x), len(y))


def _chunks(x: list[Tensor], y: list[Tensor], most: int) -> Iterator[list[tuple[int, int]]]:
    """Yield the pairs of layers, ``most`` of equal shapes at a time."""
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for i, j in product(range(len(x)), range(len(y))):
        groups.setdefault((x[i].shape[1], y[j].shape[1]), []).append((i, j))
    for pairs in groups.values():
        yield from (pairs[start : start + most] for start in range(0, len(pairs), most))


def _table(errors: dict[tuple[int, int], AlignmentError], rows: int, columns: int) -> Errors:
    return [[errors[i, j] for j in range(columns)] for i in range(rows)]


def _linear(
    x: list[Tensor],
    y: list[Tensor],
    x_judged: list[Tensor],
    y_judged: list[Tensor],
    groups_judged: np.ndarray | None,
    bound: int,
    report: Any,
) -> tuple[Errors, Errors]:
    """Return the errors of least squares, with every layer of X factored once per group of Y."""
    train: Errors = [[] for _ in x]
    heldout: Errors = [[] for _ in x]
    # Of a column: its rows, centred and predicted, and what subtracting and squaring takes.
    groups = _groups(y, bound // (4 * 8 * (len(x[0]) + len(x_judged[0]))))
    for done, group in enumerate(groups):
        sides = ((y, None), (y_judged, groups_judged))
        targets = [_Targets([side[j] for j in group], of_rows) for side, of_rows in sides]
        for i, (fitted, judged) in enumerate(zip(x, x_judged, strict=True)):
            check_least_squares(fitted, f"X[{i}]")
            mean = fitted.double().mean(0)
            centred = fitted.double() - mean
            weights = LeastSquares(fitted, "align_grid", f"X[{i}]").solve(targets[0].centred)
            train[i] += targets[0].errors(centred, weights, targets[0].mean)
            heldout[i] += targets[1].errors(judged.double() - mean, weights, targets[0].mean)
            report((done + (i + 1) / len(x)) / len(groups))
    return train, heldout


def _groups(layers: list[Tensor], most: int) -> list[list[int]]:
    """Return numbers of layers, as many of them in a group as have ``most`` columns in all."""
    groups: list[list[int]] = []
    columns = 0
    for number, layer in enumerate(layers):
        columns += layer.shape[1]
        if not groups or columns > most:
            groups.append([])
            columns = layer.shape[1]
        groups[-1].append(number)
    return groups


class _Targets:
    """Layers of Y on the same rows, side by side in float64, and the example of each row."""

    def __init__(self, layers: list[Tensor], groups: np.ndarray | None) -> None:
        self.widths, self.groups = [layer.shape[1] for layer in layers], groups
        whole = torch.cat([layer.double() for layer in layers], 1)
        self.mean = whole.mean(0)
        self.centred = whole - self.mean
        self.spreads = self._of_rows(self.centred)

    def _of_rows(self, differences: Tensor) -> np.ndarray:
        """Return the sums of squares of the rows of every layer, [layers, n] on the host."""
        parts = differences.split(self.widths, 1)
        sums = torch.stack([torch.linalg.vector_norm(part, dim=1).square() for part in parts])
        return sums.cpu().numpy()

    def errors(self, x: Tensor, weights: Tensor, offset: Tensor) -> list[AlignmentError]:
        """Return the errors of ``x @ weights + offset`` for every layer."""
        residuals = torch.addmm(self.centred, x, weights, beta=-1)
        residuals += offset - self.mean
        parts = zip(self._of_rows(residuals), self.spreads, self.widths, strict=True)
        return [error_of_rows(e, s, width, self.groups) for e, s, width in parts]


def _sides(X: Layers, Y: Layers, names: tuple[str, str]) -> tuple[list[Tensor], list[Tensor]]:
    """Return all layers as tensors of equal n on one device."""
    of_x: list[Array] = list(listed(X))
    of_y: list[Array] = list(listed(Y))
    for layers, name in ((of_x, names[0]), (of_y, names[1])):
        if not layers:
            raise ValueError(f"{name}: wanted at least one layer, got none")
    first = f"{names[0]}[0]"
    x = [
        checked_pair(layer, of_y[0], (f"{names[0]}[{i}]", f"{names[1]}[0]"))[0]
        for i, layer in enumerate(of_x)
    ]
    y = [checked_pair(x[0], layer, (first, f"{names[1]}[{j}]"))[1] for j, layer in enumerate(of_y)]
    return x, y


def _check_counts(fitted: list[Tensor], judged: list[Tensor], name: str) -> None:
    side = name.removesuffix("_heldout")
    if len(judged) != len(fitted):
        raise ValueError(f"{name}: wanted {len(fitted)} layers as in {side}, got {len(judged)}")
    for number, (layer, rows) in enumerate(zip(fitted, judged, strict=True)):
        if rows.shape[1] != layer.shape[1]:
            raise ValueError(
                f"{name}[{number}]: wanted {layer.shape[1]} columns as in {side}[{number}], got "
                f"{rows.shape[1]}"
            )
