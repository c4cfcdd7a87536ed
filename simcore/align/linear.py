"""Linear regression from X to Y."""

from __future__ import annotations

import math
from numbers import Real

import torch
from torch import Tensor

from simcore._grid.inputs import Array
from simcore.align._base import Aligner, require_rows


class LinearAligner(Aligner):
    """Least squares: ``g(X) = X W + b``.

    Parameters
    ----------
    ridge : float
        Penalty ``ridge * ||W||_F^2`` beside the sum of squared errors; b is free of it. With 0 the
        equations are solved by QR, else by the Cholesky factor of the penalised covariance; both in
        float64.

    Attributes
    ----------
    coef_ : Tensor ``[p, q]``
    intercept_ : Tensor ``[q]``
        float64.

    Raises
    ------
    ValueError
        In `fit`: ``ridge`` below 0, or so small that columns which depend on others cannot be told
        from them; without ridge, fewer rows than p + 1.

    Notes
    -----
    Columns that depend on others linearly, as layer normalisation makes them, get the solution of
    least norm; the numerical rank is counted as in `simcore.Basis`.

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
            require_rows(x, "X", x.shape[1] + 1, "least squares without ridge")
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
        """``(Y - b) pinv(W)``: exact where W is square and invertible.

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
    """The W of least ``||x W - y||_F``, and of least norm among those, ``[p, q]``."""
    q, r = torch.linalg.qr(x)
    spectrum = torch.linalg.svdvals(r)  # those of x
    if spectrum[-1] > tolerance * spectrum[0]:
        return torch.linalg.solve_triangular(r, q.T @ y, upper=True)
    # Dependent columns, as layer normalisation makes them. Not LAPACK's pivoted QR (gelsy): torch
    # 2.13 hands it a rank far below the true one for some matrices of this kind.
    return torch.linalg.pinv(r, rtol=tolerance) @ (q.T @ y)
