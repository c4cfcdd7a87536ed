"""The errors of a map on some rows, and their standard errors over the examples.

With e_c the sum of squared errors of the rows of group c, s_c the sum of squares of their distances
from the mean of Y, and n_c their number, the mean squared error and the square of the relative
error are ratios of sums over groups, sum(e) / (q sum(n)) and sum(e) / sum(s). The standard error of
a ratio sum(e) / sum(d) over m groups comes from linearization (Cochran 1977, section 6.4):
``sqrt(m / (m - 1) * sum((e - ratio * d)^2)) / sum(d)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from simcore._grid.inputs import Groups, group_numbers


@dataclass(frozen=True)
class AlignmentError:
    """The error of ``g(X)`` as an estimate of Y.

    `mse` and `relative` count every column of Y, whatever the method, so that methods can be
    compared. `component_mse` and `component_relative` count the kept principal components of Y
    alone; they exist for "svcca" and are the numbers that Ren et al. report for it. The two kinds
    are not comparable: components have larger variances than columns, so that even a better map
    may have a larger error per component than another map has per column.

    Attributes
    ----------
    mse : float
        Mean squared error per entry of Y (Ren et al. call it L2).
    relative : float
        ``||g(X) - Y||_F / ||Y - mean(Y)||_F``: 1 if ``g`` is the constant mean of Y; ``nan`` where
        Y is constant.
    component_mse : float, optional
        Mean squared error per entry of ``Y V``, V ``[q, k]`` the kept components of Y; None for a
        method that keeps no components.
    component_relative : float, optional
        ``||(g(X) - Y) V||_F / ||(Y - mean(Y)) V||_F``; None for a method that keeps no components.
    stderr : AlignmentError, optional
        The standard errors of these numbers over the examples, for the fitted map as it is: how far
        they would move on other rows, not how far another fit would move them. On the rows of the
        fit they are too small. ``nan`` where all rows belong to one example, and where the number
        itself is ``nan``.
    """

    mse: float
    relative: float
    component_mse: float | None = None
    component_relative: float | None = None
    stderr: AlignmentError | None = None

    def __repr__(self) -> str:
        """Return the numbers that there are; standard errors as plus or minus."""
        names = [one.name for one in fields(self) if one.name != "stderr"]
        parts = []
        for name in names:
            value, error = getattr(self, name), getattr(self.stderr, name, None)
            if value is not None:
                parts.append(f"{name}={value:.4g}" + ("" if error is None else f" +- {error:.2g}"))
        return f"AlignmentError({', '.join(parts)})"


def alignment_error(predicted: Tensor, y: Tensor, groups: Groups | None = None) -> AlignmentError:
    """Return the errors of predictions ``[n, q]`` of y, summed in float64, with standard errors."""
    wanted = y.double()
    squared = (predicted.double() - wanted).square().sum(1)
    spread = (wanted - wanted.mean(0)).square().sum(1)
    rows = torch.stack([squared, spread]).cpu().numpy()
    return error_of_rows(rows[0], rows[1], y.shape[1], group_numbers(groups, len(y)))


def with_components(whole: AlignmentError, kept: AlignmentError) -> AlignmentError:
    """Return the errors `whole` with the errors of the kept components beside them."""
    stderr = whole.stderr
    if stderr is not None and kept.stderr is not None:
        stderr = with_components(stderr, kept.stderr)
    return AlignmentError(whole.mse, whole.relative, kept.mse, kept.relative, stderr)


def error_of_rows(
    squared: np.ndarray, spread: np.ndarray, width: int, groups: np.ndarray | None
) -> AlignmentError:
    """Return the errors from the errors of every row."""
    # ``squared`` and ``spread``, float64 [n], have the squared error of every row and its squared
    # distance from the mean of Y, and ``width`` is the number of columns of Y. ``groups`` numbers
    # the example of every row, from 0 without gaps; None if each row is one.
    e, s, n = squared, spread, np.ones_like(squared)
    if groups is not None:
        e, s, n = (np.bincount(groups, weights=row) for row in (e, s, n))
    mse, mse_error = _ratio(e, n)
    square, square_error = _ratio(e, s)
    relative = math.sqrt(square)
    # The derivative of the root; an error that is exactly 0 does not move.
    relative_error = square_error / (2 * relative) if relative != 0 else 0.0
    return AlignmentError(
        mse / width, relative, stderr=AlignmentError(mse_error / width, relative_error)
    )


def _ratio(parts: np.ndarray, wholes: np.ndarray) -> tuple[float, float]:
    """Return ``sum(parts) / sum(wholes)`` and its standard error."""
    count, whole = len(parts), float(wholes.sum())
    if whole == 0:
        return math.nan, math.nan
    ratio = float(parts.sum()) / whole
    if count < 2:
        return ratio, math.nan
    residual = float(np.square(parts - ratio * wholes).sum())
    return ratio, math.sqrt(count / (count - 1) * residual) / whole
