"""Linear maps from X to Y: by least squares, and by gradient descent."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from simcore._grid.inputs import Array, check_rows
from simcore._grid.options import check_ridge
from simcore._grid.rank import (
    CLEAR,
    component_thresholds,
    numerical_rank,
    rounding_unit,
    thresholds_of_rows,
    warn_unclear_ranks,
)
from simcore.align._base import Aligner, TooFewRowsError
from simcore.align._neural import NeuralAligner
from simcore.align._training import Training
from simcore.nn import BatchedLinear


class LinearAligner(Aligner):
    """The linear map ``g(X) = X W + b`` of least squares.

    Parameters
    ----------
    ridge : float
        Factor of the penalty ``ridge * ||W||_F^2``, which is added to the sum of squared errors; b
        has no penalty. The equations are solved in float64: by QR for 0, else by the Cholesky
        factor of the penalised covariance.

    Attributes
    ----------
    coef_ : Tensor ``[p, q]``, float64
        W.
    intercept_ : Tensor ``[q]``, float64
        b.

    Raises
    ------
    ValueError
        In `fit`: ``ridge`` is below 0, or so small that rounding leaves the penalised covariance
        singular; without ridge, fewer rows than p + 1.

    Notes
    -----
    If columns of X depend on others linearly, as after layer normalisation, W is the solution of
    least norm. The numerical rank is counted as in `simcore.Basis`.

    References
    ----------
    Ren et al. 2023, section 3.3.

    Examples
    --------
    >>> import torch
    >>> from simcore.align import LinearAligner
    >>> x = torch.randn(100, 8)
    >>> y = x @ torch.randn(8, 4) + 1
    >>> LinearAligner().fit(x, y).score(x, y) > 0.999
    True
    """

    coef_: Tensor
    intercept_: Tensor

    def __init__(self, *, ridge: float = 0.0) -> None:
        self.ridge = ridge

    def _fit(self, x: Tensor, y: Tensor) -> None:
        ridge = check_ridge(self.ridge)
        if not ridge:
            check_least_squares(x, "X")
        mean_x, mean_y = x.double().mean(0), y.double().mean(0)
        xc, yc = x.double() - mean_x, y.double() - mean_y
        if ridge:
            gram = xc.T @ xc
            gram.diagonal().add_(ridge)
            self.coef_ = torch.cholesky_solve(xc.T @ yc, self._factor(gram))
        else:
            self.coef_ = LeastSquares(x, "LinearAligner", "X").solve(yc)
        self.intercept_ = mean_y - mean_x @ self.coef_

    def _factor(self, gram: Tensor) -> Tensor:
        factor, failed = torch.linalg.cholesky_ex(gram)
        if failed:
            raise ValueError(
                f"ridge: wanted more than the rounding of X's covariance, or 0, got {self.ridge!r}"
            )
        return factor

    def _transform(self, x: Tensor) -> Tensor:
        weights = self.coef_.to(x.device), self.intercept_.to(x.device)
        return (x.double() @ weights[0] + weights[1]).to(x.dtype)

    def inverse_transform(self, Y: Array) -> Array:
        """Return ``(Y - b) pinv(W)``, the exact inverse where W is square and invertible.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `transform`.
        """
        return self._apply(self._inverse, Y, "n_features_out_")

    def _inverse(self, y: Tensor) -> Tensor:
        return _undone(y, self.coef_, self.intercept_)


class GradientLinearAligner(NeuralAligner):
    """The linear map ``g(X) = X W + b``, trained by gradient descent on the mean squared error.

    `LinearAligner` solves the same problem exactly, so no linear map has a smaller error on the
    rows of `fit`. Gradient descent finds another map where it ends early: with the training of Ren
    et al.'s code, ``GradientLinearAligner(**REN2023["linear-gd"])``, the map stays near its random
    start.

    The parameters ``training`` and ``progress`` are as for `INNAligner`. X and Y may have different
    numbers of columns.

    Attributes
    ----------
    coef_ : Tensor ``[p, q]``, float64
        W, with the scaling of columns included.
    intercept_ : Tensor ``[q]``, float64
        b, likewise.
    network_, log_
        As in `INNAligner`.

    References
    ----------
    Ren et al. 2023, section 3.3 and their published code.

    Examples
    --------
    >>> import torch
    >>> from simcore.align import GradientLinearAligner, Training
    >>> x = torch.randn(64, 6)
    >>> y = x @ torch.randn(6, 2)
    >>> aligner = GradientLinearAligner(training=Training(learning_rate=0.1)).fit(x, y)
    >>> aligner.errors(x, y).relative < 0.1
    True
    """

    LEARNING_RATE = 3e-3

    def __init__(self, *, training: Training | None = None, progress: bool = False) -> None:
        self._keep(locals())

    def _network(self, p: int, q: int, batch: int, seed: int) -> nn.Module:
        return BatchedLinear(p, q, batch=batch)

    @property
    def coef_(self) -> Tensor:
        """W, with the scaling of columns included."""
        scaling, weight = self._scaling, self._layer.weight.detach()[0].double()
        return weight / scaling.std_x.double()[0].T * scaling.std_y.double()[0]

    @property
    def intercept_(self) -> Tensor:
        """b, with the scaling of columns included."""
        scaling, bias = self._scaling, self._layer.bias.detach()[0].double()
        own = bias * scaling.std_y.double()[0, 0] + scaling.mean_y.double()[0, 0]
        return own - scaling.mean_x.double()[0, 0] @ self.coef_

    @property
    def _layer(self) -> BatchedLinear:
        self._require_fitted()
        layer = self.network_
        assert isinstance(layer, BatchedLinear)
        return layer

    def inverse_transform(self, Y: Array) -> Array:
        """Return ``(Y - b) pinv(W)``, the exact inverse where W is square and invertible.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `transform`.
        """
        return self._apply(self._inverse, Y, "n_features_out_")

    def _inverse(self, y: Tensor) -> Tensor:
        return _undone(y, self.coef_, self.intercept_)


def _undone(y: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return ``(y - bias) pinv(weight)`` in the dtype of y."""
    inverse = torch.linalg.pinv(weight).to(y.device)
    return ((y.double() - bias.to(y.device)) @ inverse).to(y.dtype)


class LeastSquares:
    """The centred columns of ``x [n, p]``, float64, factored once for the maps to many Y.

    Components that are rounding alone by the rule of `simcore.Basis` count as 0.
    """

    def __init__(self, x: Tensor, function: str, name: str) -> None:
        wide, unit = x.double(), rounding_unit(x)
        self.q, self.r = torch.linalg.qr(wide - wide.mean(0))  # [n, p], [p, p]
        self.inverse: Tensor | None = None
        lengths = torch.linalg.vector_norm(wide, dim=0)
        scaled = self.r / torch.where(lengths > 0, lengths, 1.0)
        if torch.linalg.svdvals(scaled)[-1] > CLEAR * unit:
            return  # whatever their scale, the columns are independent
        # Columns depend on each other, as after layer normalisation. LAPACK's pivoted QR (gelsy) is
        # not used: torch 2.13 calls it with a rank far below the true rank of some such matrices.
        u, s, vt = torch.linalg.svd(self.r)
        known, thresholds = s.cpu(), component_thresholds(x, s, vt, unit).cpu()
        rank = numerical_rank(known, thresholds_of_rows(x, known, vt, unit.cpu(), thresholds))
        if not rank.is_clear:
            warn_unclear_ranks(function, [(name, rank)])
        kept = [*rank.members]
        self.inverse = (vt[kept].T / s[kept]) @ u[:, kept].T

    def solve(self, y: Tensor) -> Tensor:
        """Return the W ``[p, q]`` of least ``||x W - y||_F``; of several, the W of least norm."""
        projected = self.q.T @ y
        if self.inverse is not None:
            return self.inverse @ projected
        return torch.linalg.solve_triangular(self.r, projected, upper=True)


def check_least_squares(x: Tensor, name: str) -> None:
    """Raise a TooFewRowsError if the rows of x leave the map undetermined."""
    width = x.shape[1]
    check_rows(x, name, width + 1, f"least squares on {width} columns", TooFewRowsError)
