"""The base class of all aligners, the checks of their rows, and the errors of their maps.

With e_c the sum of squared errors of the rows of group c, s_c the sum of squares of their distances
from the mean of Y, and n_c their number, the mean squared error and the square of the relative
error are ratios of sums over groups, sum(e) / (q sum(n)) and sum(e) / sum(s). The standard error of
a ratio sum(e) / sum(d) over m groups comes from linearization (Cochran 1977, section 6.4):
``sqrt(m / (m - 1) * sum((e - ratio * d)^2)) / sum(d)``.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from simcore._grid.inputs import (
    LEAST_ROWS,
    Array,
    Groups,
    as_tensor,
    check_alike,
    check_finite_count,
    check_rows,
    group_numbers,
)
from simcore._grid.one_operator import refuse_derivatives


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


if TYPE_CHECKING:
    from sklearn.utils import Tags


class NotFittedError(ValueError, AttributeError):
    """`transform`, or another method that needs a fitted map, was called before `fit`."""


class TooFewRowsError(ValueError):
    """There are fewer rows than a method needs to fit a map or to judge it."""


class ConstantRowsError(ValueError):
    """All rows of one side are equal, but the method needs rows that differ."""


class Aligner(ABC):
    """A map ``g`` fitted so that ``g(X)`` is close to Y, with scikit-learn's conventions.

    A subclass takes its parameters as keyword arguments of ``__init__``, stores each under its own
    name, and defines `_fit` and `_transform` on checked tensors. Names of attributes that `fit`
    sets end in ``_``.
    """

    n_features_in_: int
    n_features_out_: int

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of ``__init__`` and their values; ``deep`` has no effect here."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name.

        Raises
        ------
        ValueError
            An unknown name.
        """
        known = self._parameter_names()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"{name}: wanted one of {known} of {type(self).__name__}")
            setattr(self, name, value)
        return self

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def fit(self, X: Array, Y: Array) -> Self:
        """Fit the map to rows of X and the rows of Y that belong to them.

        Parameters
        ----------
        X, Y : array ``[n, p]``, ``[n, q]``
            torch tensors or numpy arrays; numpy integers are converted to float64.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            X and Y are not two matrices of equal n on one device; NaN or infinity; fewer rows than
            the method needs (`TooFewRowsError`); equal rows where the method needs rows that differ
            (`ConstantRowsError`); a parameter out of range.
        """
        x, y = checked_pair(X, Y)
        self._fit(x, y)
        self.n_features_in_, self.n_features_out_ = x.shape[1], y.shape[1]
        return self

    def transform(self, X: Array) -> Array:
        """Return ``g(X)``.

        Parameters
        ----------
        X : array ``[n, p]``

        Returns
        -------
        array ``[n, q]``
            float64 for float64 input, else float32; a numpy array for a numpy array, else a tensor
            on the device of X. Not differentiable.

        Raises
        ------
        NotFittedError
            `fit` was not called before.
        TypeError, ValueError
            Another number of columns than in `fit`, NaN or infinity.
        """
        return self._apply(self._transform, X, "n_features_in_")

    def predict(self, X: Array) -> Array:
        """Return ``g(X)``, as `transform` does: scikit-learn's ``cross_val_predict`` calls it."""
        return self.transform(X)

    def fit_transform(self, X: Array, Y: Array) -> Array:
        """Call `fit`, then return `transform` of the same X."""
        return self.fit(X, Y).transform(X)

    def score(self, X: Array, Y: Array) -> float:
        """Return R2: ``1 - ||g(X) - Y||_F^2 / ||Y - mean(Y)||_F^2``.

        1 is a perfect fit; the constant mean of Y has 0. The value is
        ``1 - errors(X, Y).relative ** 2``, and scikit-learn's R2 with
        ``multioutput="variance_weighted"``.
        """
        return 1.0 - self.errors(X, Y).relative ** 2

    def errors(self, X: Array, Y: Array, *, groups: Groups | None = None) -> AlignmentError:
        """Return the mean squared and the relative error of ``g(X)`` as an estimate of Y.

        Both count all columns of Y; see `AlignmentError` for the errors of kept components.

        Parameters
        ----------
        X, Y : array ``[n, p]``, ``[n, q]``
        groups : sequence of int, ``[n]``, optional
            The example of each row, such as the sentence of a word, for the standard errors;
            default: rows are independent examples.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `fit` and `transform`; `groups` does not have a whole number for each row.
        """
        self._require_fitted()
        x, y = checked_pair(X, Y)
        self._require_width(x, "X", "n_features_in_")
        self._require_width(y, "Y", "n_features_out_")
        return self._errors(self._transform(x), y, groups)

    def __sklearn_tags__(self) -> Tags:
        """Return the tags that describe the estimator; only scikit-learn calls this."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="transformer",
            target_tags=TargetTags(required=True, multi_output=True, single_output=False),
            transformer_tags=TransformerTags(),
            input_tags=InputTags(),
        )

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({params})"

    @abstractmethod
    def _fit(self, x: Tensor, y: Tensor) -> None:
        """Fit the map to checked rows."""

    @abstractmethod
    def _transform(self, x: Tensor) -> Tensor:
        """Return ``g(x)`` of checked rows."""

    def _errors(self, predicted: Tensor, y: Tensor, groups: Groups | None) -> AlignmentError:
        return alignment_error(predicted, y, groups)

    def _apply(self, function: Any, rows: Array, width: str) -> Array:
        """Return ``function`` of the checked rows, as a numpy array if ``rows`` is one."""
        self._require_fitted()
        tensor = checked_rows(rows, "X")
        self._require_width(tensor, "X", width)
        result = function(tensor)
        return result.cpu().numpy() if isinstance(rows, np.ndarray) else result

    def _require_fitted(self) -> None:
        if not hasattr(self, "n_features_in_"):
            raise NotFittedError(f"{type(self).__name__}: wanted a call of fit first, found none")

    def _require_width(self, rows: Tensor, name: str, width: str) -> None:
        if rows.shape[1] != getattr(self, width):
            raise ValueError(
                f"{name}: wanted {getattr(self, width)} columns as in fit, got {rows.shape[1]}"
            )


def checked_rows(rows: Array, name: str) -> Tensor:
    """Return rows as a finite ``[n, p]`` tensor."""
    if isinstance(rows, np.ndarray) and rows.dtype.kind in "iu":
        rows = rows.astype(np.float64)  # as scikit-learn's estimators
    tensor = as_tensor(rows, name)
    if not torch.compiler.is_compiling():
        refuse_derivatives("an aligner", [(name, tensor)])
    tensor = tensor.detach()
    if tensor.ndim != 2 or tensor.shape[1] == 0:
        raise ValueError(
            f"{name}: wanted shape [n, p] with p of at least 1, got {tuple(tensor.shape)}"
        )
    check_finite_count(torch.isfinite(tensor).sum(), tensor.numel(), name)
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def checked_pair(x: Array, y: Array, names: tuple[str, str] = ("X", "Y")) -> tuple[Tensor, Tensor]:
    rows_x, rows_y = checked_rows(x, names[0]), checked_rows(y, names[1])
    check_alike(rows_y, names[1], rows_x, names[0])
    least = LEAST_ROWS["variance"]
    check_rows(rows_x, names[0], least, "a fit and its errors", TooFewRowsError)
    return rows_x, rows_y
