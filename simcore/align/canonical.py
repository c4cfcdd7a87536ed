"""Canonical maps: from X to its canonical variates, and from these to Y."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from simcore._grid.accuracy import DIRECTIONS_ARE_FLOAT32, DIRECTIONS_TIE, computed_again
from simcore._grid.basis import Basis, loses_weights, per_layer_truncation, warn_unclear_cuts
from simcore._grid.finish import warn_caller
from simcore._grid.inputs import Array, Groups, check_rows
from simcore._grid.options import check_choice, check_number
from simcore.align._base import (
    Aligner,
    AlignmentError,
    ConstantRowsError,
    TooFewRowsError,
    alignment_error,
    with_components,
)
from simcore.basis import bases, truncate_all

Scale = Literal["one", "rho"]


class _CanonicalAligner(Aligner):
    """The map ``g(X) = Xc W_X diag(s) inv(W_Y) + mean(Y)`` over the kept canonical directions."""

    # ``inv(W_Y) = (Yc W_Y)^T Yc``, [c, q], regresses Y on its variates: it maps them to the rows
    # nearest to Y. If the number of kept directions is the rank of Y, it is the pseudo-inverse of
    # ``W_Y``. With fewer directions the pseudo-inverse would give the shortest rows that have these
    # variates instead of the nearest.

    correlations_: Tensor
    x_weights_: Tensor
    y_weights_: Tensor
    x_mean_: Tensor
    y_mean_: Tensor

    scale: Scale

    def _fit(self, x: Tensor, y: Tensor) -> None:
        check_choice(self.scale, "scale", Scale)
        basis_x, basis_y = self._bases(x, y)
        function, of_float32 = type(self).__name__, not x.dtype == y.dtype == torch.float64
        lost = [name for basis, name in ((basis_x, "X"), (basis_y, "Y")) if loses_weights(basis)]
        if lost:
            computed_again(function, lost[0])
            basis_x, basis_y = self._bases(x.double(), y.double())
        for basis, name in ((basis_x, "X"), (basis_y, "Y")):
            if not basis.kept:
                raise ConstantRowsError(f"{name}: wanted rows that differ, got equal ones")
            if basis.exponent:
                found = "more" if basis.exponent > 0 else "less"
                raise ValueError(
                    f"{name}: wanted columns that vary by 2^-900 to 2^960, got {found}; divide "
                    "them by a constant"
                )
        # With fewer rows one side spans all n - 1 dimensions: every correlation is 1.
        least = max(self._rank(basis_x, x), self._rank(basis_y, y)) + 2
        check_rows(x, "X", least, "the canonical directions", TooFewRowsError)
        u, rho, vt, keep = self._canonical(basis_x, basis_y)
        if of_float32 and not lost and _gap(rho, keep) < DIRECTIONS_ARE_FLOAT32:
            computed_again(function, "X, Y")
            basis_x, basis_y = self._bases(x.double(), y.double())
            u, rho, vt, keep = self._canonical(basis_x, basis_y)
        if _gap(rho, keep) < DIRECTIONS_TIE:
            warn_caller(
                f"{function}: kept and left out directions of X[0] and Y[0] have canonical "
                "correlations that are equal up to rounding, so that the map follows rounding; "
                "weight_share=1 keeps all"
            )
        u, vt = u[:, keep], vt[keep]
        self.correlations_ = rho[keep].clamp(max=1.0)
        self.x_weights_, self._x_inverse = _weights(basis_x, u)
        self.y_weights_, self._y_inverse = _weights(basis_y, vt.T)
        self.x_mean_, self.y_mean_ = x.double().mean(0), y.double().mean(0)
        self._y_components = basis_y.components

    def _bases(self, x: Tensor, y: Tensor) -> tuple[Basis, Basis]:
        basis_x, basis_y = bases([x, y])
        return basis_x, basis_y

    def _rank(self, basis: Basis, rows: Tensor) -> int:
        """Return the rank; where it is bounded by the number of rows, what it could be at most."""
        return rows.shape[1] if basis.kept >= len(rows) - 1 else basis.kept

    def _canonical(self, x: Basis, y: Basis) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the canonical directions of both sides, their correlations, and which to keep."""
        cross = x.vectors.double().T @ y.vectors.double()
        u, rho, vt = torch.linalg.svd(cross, full_matrices=False)
        return u, rho, vt, self._directions(x, u, rho)

    def _directions(self, basis: Basis, u: Tensor, rho: Tensor) -> Tensor:
        """Return the indices of the canonical directions to keep."""
        return torch.arange(len(rho), device=rho.device)

    def _scales(self) -> Tensor:
        rho = self.correlations_
        return rho if self.scale == "rho" else torch.ones_like(rho)

    def _transform(self, x: Tensor) -> Tensor:
        forward = (self.x_weights_ * self._scales()) @ self._y_inverse
        centred = x.double() - self.x_mean_.to(x.device)
        return (centred @ forward.to(x.device) + self.y_mean_.to(x.device)).to(x.dtype)

    def inverse_transform(self, Y: Array) -> Array:
        """Return ``Yc W_Y diag(1 / s) inv(W_X) + mean(X)``, with ``inv(W_X) = (Xc W_X)^T Xc``.

        This is the exact inverse of `transform` where both sides have as many kept canonical
        directions as columns; elsewhere it is a projection onto the kept directions.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `transform`.
        """
        return self._apply(self._inverse, Y, "n_features_out_")

    def _inverse(self, y: Tensor) -> Tensor:
        scales = self._scales()
        kept = scales > 0  # `transform` maps a direction without correlation to the mean
        backward = (self.y_weights_[:, kept] / scales[kept]) @ self._x_inverse[kept]
        centred = y.double() - self.y_mean_.to(y.device)
        return (centred @ backward.to(y.device) + self.x_mean_.to(y.device)).to(y.dtype)


def _gap(rho: Tensor, keep: Tensor) -> float:
    """Return how near a kept correlation is to one that is left out; infinite if none is."""
    left = torch.ones_like(rho, dtype=torch.bool).index_fill(0, keep, False)
    if not left.any():
        return torch.inf
    return float((rho[keep][:, None] - rho[left]).abs().min())


def _weights(basis: Basis, rotation: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``W [p, c]`` and ``(Xc W)^T Xc [c, p]``; ``Xc W`` are the canonical variates."""
    s, components = basis.singular_values, basis.components.double()
    return components.T @ (rotation / s[:, None]), (rotation.T * s) @ components


class CCAAligner(_CanonicalAligner):
    """The canonical map: X's canonical variates take the place of Y's.

    ``g(X) = Xc W_X diag(s) inv(W_Y) + mean(Y)``, where ``inv(W_Y) = (Yc W_Y)^T Yc`` regresses Y on
    its variates. If there are as many variates as the rank of Y, ``inv`` is the pseudo-inverse.

    Parameters
    ----------
    scale : {"one", "rho"}
        Choice of ``s``: "one" is 1, the bijection of Ren et al., equation 6; "rho" is the canonical
        correlations, which make g the least-squares map.

    Attributes
    ----------
    correlations_ : Tensor ``[c]``
        Canonical correlations on the rows of `fit`, descending.
    x_weights_, y_weights_ : Tensor ``[p, c]``, ``[q, c]``
        ``W_X`` and ``W_Y``, float64; the variates ``Xc W_X`` have unit norm.
    x_mean_, y_mean_ : Tensor ``[p]``, ``[q]``, float64
        Means of the columns.

    Raises
    ------
    ValueError
        In `fit`: an unknown ``scale``; equal rows; fewer rows than the larger rank plus 2: one side
        then spans all n - 1 dimensions, and every canonical correlation is 1.

    References
    ----------
    Ren et al. 2023, equations 3 to 6.

    Examples
    --------
    >>> import torch
    >>> from simcore.align import CCAAligner
    >>> x = torch.randn(100, 8)
    >>> y = x @ torch.randn(8, 8)
    >>> aligner = CCAAligner().fit(x, y)
    >>> bool((aligner.inverse_transform(aligner.transform(x)) - x).abs().max() < 1e-2)
    True
    """

    def __init__(self, *, scale: Scale = "one") -> None:
        self.scale = scale


class SVCCAAligner(_CanonicalAligner):
    """The canonical map between the leading principal components of both sides.

    `transform` returns rows in the span of the kept components of Y. `errors` compares them with Y
    twice: `AlignmentError.mse` and ``relative`` count every column of Y, as for all methods, and
    ``component_mse`` and ``component_relative`` count the kept components alone, as Ren et al. do.
    `score` counts every column.

    Parameters, attributes and errors are as for `CCAAligner`, and:

    Parameters
    ----------
    truncation : float or int
        Principal components to keep of each side; see `simcore.svcca_grid`.
    scale : {"one", "rho"}
        As in `CCAAligner`.

    References
    ----------
    Raghu et al. 2017; Ren et al. 2023, section 3.3 and 4.1.

    Examples
    --------
    >>> import torch
    >>> from simcore.align import SVCCAAligner
    >>> x = torch.randn(100, 8)
    >>> SVCCAAligner(truncation=4).fit(x, x).transform(x).shape
    torch.Size([100, 8])
    """

    def __init__(self, *, truncation: float | int = 0.99, scale: Scale = "one") -> None:
        self.truncation = truncation
        self.scale = scale

    def _bases(self, x: Tensor, y: Tensor) -> tuple[Basis, Basis]:
        cuts = per_layer_truncation(self.truncation, 1) * 2
        basis_x, basis_y = truncate_all(bases([x, y]), cuts)
        names, made = ("X", "Y"), (basis_x, basis_y)
        warn_unclear_cuts("SVCCAAligner", [*zip(names, made, cuts, strict=True)])
        return basis_x, basis_y

    def _rank(self, basis: Basis, rows: Tensor) -> int:
        return basis.kept

    def _errors(self, predicted: Tensor, y: Tensor, groups: Groups | None) -> AlignmentError:
        whole = alignment_error(predicted, y, groups)
        components, mean = self._y_components.T.to(y), self.y_mean_.to(y)
        kept = alignment_error((predicted - mean) @ components, (y - mean) @ components, groups)
        return with_components(whole, kept)


class PWCCAAligner(_CanonicalAligner):
    """The canonical map over the directions that carry most of X's projection weight.

    The weight of a direction is ``a_i = sum_j |<h_i, x_j>|`` over the columns of X, as in
    `simcore.pwcca_grid`. The heaviest directions are kept, as many as have ``weight_share`` of all
    weight. With 1.0 the map equals `CCAAligner`'s, as in Ren et al., table 3: the papers use the
    weights for the similarity, not for the map.

    Parameters, attributes and errors are as for `CCAAligner`, and:

    Parameters
    ----------
    weight_share : float
        Share of the sum of weights that the kept directions have, in (0, 1].
    scale : {"one", "rho"}
        As in `CCAAligner`.

    References
    ----------
    Morcos et al. 2018; Ren et al. 2023, equations 7 to 9.

    Examples
    --------
    >>> import torch
    >>> from simcore.align import PWCCAAligner
    >>> x = torch.randn(100, 8)
    >>> PWCCAAligner(weight_share=0.5).fit(x, x).correlations_.shape[0] < 8
    True
    """

    def __init__(self, *, weight_share: float = 0.99, scale: Scale = "one") -> None:
        self.weight_share = weight_share
        self.scale = scale

    def _directions(self, basis: Basis, u: Tensor, rho: Tensor) -> Tensor:
        share = check_number(
            self.weight_share, "weight_share", "a share in (0, 1]", lambda v: 0 < v <= 1
        )
        scaled = basis.singular_values[:, None] * basis.components.double()
        weights = (u.T @ scaled).abs().sum(1)
        order = weights.argsort(descending=True, stable=True)
        if share == 1:  # rounding may make the last sums equal
            return order.sort().values
        shares = weights[order].cumsum(0) / weights.sum()
        return order[: int((shares < share).sum()) + 1].sort().values
