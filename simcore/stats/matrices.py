"""`Rdm` and `Gram` as layers of statistics: a draw takes rows and columns of a matrix together."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simcore._grid.inputs import Layers, listed
from simcore._grid.matrices import Gram, Rdm, holds, square_of
from simcore._grid.options import check_measure_options
from simcore._grid.side import Sides, read_sides
from simcore._ops.gram_matrices import centred_gram, grams_of
from simcore._ops.rsa import standardised_triangles
from simcore.stats.grams import CkaMeasure
from simcore.stats.resampled_grid import GridMeasure, Measure, function_of, record_of, unwrapped

KINDS: dict[str, type[Rdm] | type[Gram]] = {"rsa": Rdm, "cka": Gram}  # by the name of the measure


def holds_matrices(measure: Measure, X: object, Y: object) -> bool:
    """Return whether a layer is a matrix of the kind that the measure takes."""
    known = record_of(measure)
    return known is not None and known.name in KINDS and holds(KINDS[known.name], X, Y)


class MatrixMeasure(GridMeasure):
    """RSA or CKA of layers among which there are matrices, as a function of the rows of each side.

    Every layer is made a matrix ``[n, n]`` of length 1, so that the sum of the products of the
    entries of two matrices is the value, and stays so if one is permuted.
    """

    def __init__(
        self,
        measure: Measure,
        X: Layers,
        Y: Layers | None,
        options: dict[str, Any],
        max_memory: int | None,
        caller: Callable[..., Any],
    ) -> None:
        self.known = record_of(measure)
        assert self.known is not None
        self.function, self.precomputed, self.named = function_of(self.known), True, True
        fixed = {} if isinstance(measure, str) else unwrapped(measure)[1]
        check_measure_options(self.known.name, self.function, options, caller)
        self.options = {"max_memory": max_memory, **fixed, **options}
        with torch.no_grad():
            self._observed = torch.as_tensor(self.function(X, Y, **self.options))  # and all checks
        kind, bound = KINDS[self.known.name], self.options["max_memory"]
        sides = read_sides(X, Y, "a matrix", max_memory=bound, matrices=kind)
        units = self._units(sides)  # [L, n, n]
        self.n, self.dtype, self.from_numpy = sides.n, torch.float64, sides.from_numpy
        count = len(sides.x)
        matrices: list[Any] = sides.matrices
        self.x, self.units_x = matrices[:count], units[:count].flatten(1)
        self.y = self.x if sides.same else matrices[count:]
        self.units_y = units[sides.columns]  # [Ly, n, n]
        selves = torch.tensor([[x is y for y in self.y] for x in self.x], device=units.device)
        self.selves = selves if bool(selves.any()) else None

    def _units(self, sides: Sides) -> Tensor:
        if holds(Rdm, sides.matrices):
            correlation = self.options.get("correlation", "pearson")
            rows, known = standardised_triangles(sides, correlation)  # [L, pairs], [L]
            rows = rows.masked_fill(~known[:, None], torch.nan) / 2**0.5  # an entry stands twice
            return torch.stack([square_of(row, sides.n) for row in rows])  # [L, n, n]
        estimator = self.options.get("estimator", "biased")
        centred = torch.stack([centred_gram(gram, estimator)[0] for gram in grams_of(sides)])
        return centred / torch.linalg.vector_norm(centred, dim=(1, 2), keepdim=True)

    def __call__(self, rows_x: np.ndarray | None, rows_y: np.ndarray | None) -> Tensor:
        """Return the grid of the layers with these rows; None stands for all rows in order."""
        device = self.units_y.device
        if rows_x is not None:
            taken = functools.partial(_taken, rows=torch.from_numpy(rows_x).long().to(device))
            x = list(map(taken, self.x))
            y = None if self.y is self.x else list(map(taken, self.y))
            return torch.as_tensor(self.function(x, y, **self.options))
        units = self.units_y
        if rows_y is not None:
            order = torch.from_numpy(rows_y).long().to(device)
            units = units[:, order][:, :, order]  # [Ly, n, n]
        return self.units_x @ units.flatten(1).T  # [Lx, Ly]


def _taken(layer: Tensor | Rdm | Gram, rows: Tensor) -> Tensor | Rdm | Gram:
    return layer[rows] if isinstance(layer, Tensor) else layer.taken(rows)


def of_rows(
    measure: Measure,
    X: Layers,
    Y: Layers | None,
    options: dict[str, Any],
    max_memory: int | None,
    caller: Callable[..., Any],
    *,
    permuted: bool = False,
) -> CkaMeasure | GridMeasure:
    """Return a measure of fixed layers as a function of the rows that are taken."""
    X, Y = listed(X), listed(Y)  # what is iterated once would be read twice
    if holds_matrices(measure, X, Y):
        return MatrixMeasure(measure, X, Y, options, max_memory, caller)
    if measure == "cka" and options.get("form") != "angular":
        return CkaMeasure(X, Y, options, max_memory, caller)
    return GridMeasure(measure, X, Y, options, max_memory, caller, permuted=permuted)
