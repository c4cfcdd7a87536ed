"""`Neighbours`, which may stand in for a layer in grids of neighbours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from simcore._grid.inputs import Array
from simcore._grid.one_operator import tensor_record

Metric = Literal["cosine", "euclidean", "inner"]


@tensor_record
@dataclass(frozen=True, eq=False, repr=False)
class Neighbours:
    """The k nearest other rows of every row of a layer.

    `knn_grid` takes a list of these objects wherever it takes layers, so that the neighbours of
    each layer are found once for many grids; see `neighbours`.

    Attributes
    ----------
    index : Tensor ``[n, k]``, int32
        The nearest rows of every row, nearest first; of equally near rows the lower number first.
        -1 everywhere if no row of the layer differs from another.
    values : Tensor ``[n, k]``, float64
        What ``metric`` says of each of them: the cosine distance (1 - cosine), the Euclidean
        distance or the inner product.
    squares : Tensor ``[n]``, float64
        The inner product of every row with itself, or 1 for ``cosine`` (0 for a row of zeros).
    layer : array ``[n, p]``
        The layer, in the caller's memory. Second-order similarity reads its rows.
    metric : {"cosine", "euclidean", "inner"}
    """

    index: Tensor
    values: Tensor
    squares: Tensor
    layer: Array
    metric: Metric = "cosine"

    def __repr__(self) -> str:
        return f"Neighbours(n={len(self.index)}, k={self.k}, metric={self.metric!r})"

    @property
    def k(self) -> int:
        """The number of neighbours of a row."""
        return self.index.shape[1]

    @property
    def nbytes(self) -> int:
        """The number of bytes of the three tensors."""
        return self.index.nbytes + self.values.nbytes + self.squares.nbytes

    def permute(self, rows: Tensor) -> Neighbours:
        """Return the neighbours of the same layer with its rows (examples) in the order ``rows``.

        Equally near rows keep the order that they have here.
        """
        place = torch.empty_like(rows)
        place[rows] = torch.arange(len(rows), device=rows.device)
        moved = place[self.index[rows].long()].int()
        return replace(
            self,
            index=torch.where(self.index[rows] < 0, self.index[rows], moved),
            values=self.values[rows],
            squares=self.squares[rows],
            layer=self.layer[rows],
        )


Neighbours.__module__ = "simcore.knn"  # the public module, which pickles refer to
