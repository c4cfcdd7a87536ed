"""Linear regression of Y on X."""

from __future__ import annotations

import math
from numbers import Real

import torch
from torch import Tensor

from simcore._grid.inputs import Array, check_rows
from simcore.align._base import Aligner, TooFewRowsError


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
        if not isinstance(self.ridge, Real) or not (0 <= self.ridge < math.inf):
            raise ValueError(f"ridge: wanted a number of at least 0, got {self.ridge!r}")
        if not self.ridge:
            least = x.shape[1] + 1
            check_rows(x, "X", least, "least squares without ridge", TooFewRowsError)
        tolerance = torch.finfo(x.dtype).eps * max(x.shape)
        mean_x, mean_y = x.double().mean(0), y.double().mean(0)
        xc, yc = x.double() - mean_x, y.double() - mean_y
        if self.ridge:
            gram = xc.T @ xc
            gram.diagonal().add_(float(self.ridge))
            self.coef_ = torch.cholesky_solve(xc.T @ yc, self._factor(gram))
        else:
            self.coef_ = _least_squares(xc, yc, tolerance)
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
        inverse = torch.linalg.pinv(self.coef_).to(y.device)
        return ((y.double() - self.intercept_.to(y.device)) @ inverse).to(y.dtype)


def _least_squares(x: Tensor, y: Tensor, tolerance: float) -> Tensor:
    """Return the W ``[p, q]`` of least ``||x W - y||_F``; of several, the W of least norm."""
    q, r = torch.linalg.qr(x)
    spectrum = torch.linalg.svdvals(r)  # the singular values of x
    if spectrum[-1] > tolerance * spectrum[0]:
        return torch.linalg.solve_triangular(r, q.T @ y, upper=True)
    # Columns depend on each other, as after layer normalisation. LAPACK's pivoted QR (gelsy) is not
    # used: torch 2.13 calls it with a rank far below the true rank of some such matrices.
    return torch.linalg.pinv(r, rtol=tolerance) @ (q.T @ y)
