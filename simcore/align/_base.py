"""What all aligners share: parameters, checks, errors of a fit, and scikit-learn's conventions."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from simcore._grid.inputs import Array, as_tensor, check_finite_count
from simcore._grid.one_operator import refuse_derivatives

if TYPE_CHECKING:
    from sklearn.utils import Tags  # type: ignore[import-untyped]


class NotFittedError(ValueError, AttributeError):
    """`transform` or another method that needs `fit` was called before it."""


class TooFewRowsError(ValueError):
    """A method needs more rows to fit a map, or to judge one, than there are."""


class ConstantRowsError(ValueError):
    """All rows of one side are the same, and the method needs rows that differ."""


@dataclass(frozen=True)
class AlignmentError:
    """How far ``g(X)`` is from Y.

    Attributes
    ----------
    mse : float
        Mean squared error per entry (Ren et al. call it L2).
    relative : float
        ``||g(X) - Y||_F / ||Y - mean(Y)||_F``: 1 is what the constant mean of Y reaches; ``nan``
        where Y is constant.
    """

    mse: float
    relative: float


class Aligner(ABC):
    """A map ``g`` fitted so that ``g(X)`` is close to Y; scikit-learn's conventions.

    A subclass takes its parameters as keyword arguments of ``__init__``, stores each under its own
    name, and gives `_fit` and `_transform` on checked tensors. What `fit` learns ends in ``_``.
    """

    n_features_in_: int
    n_features_out_: int

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of ``__init__`` and their values; ``deep`` changes nothing here."""
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
        """Fit the map on rows that belong together.

        Parameters
        ----------
        X, Y : array ``[n, p]``, ``[n, q]``
            torch tensors or numpy arrays; integers of numpy are taken as float64.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            Not two matrices of equal n on one device, NaN or infinity, fewer rows than the method
            needs (`TooFewRowsError`), equal rows where the method needs different ones
            (`ConstantRowsError`), a parameter out of range.
        """
        x, y = checked_pair(X, Y)
        self._fit(x, y)
        self.n_features_in_, self.n_features_out_ = x.shape[1], y.shape[1]
        return self

    def transform(self, X: Array) -> Array:
        """``g(X)``.

        Parameters
        ----------
        X : array ``[n, p]``

        Returns
        -------
        array ``[n, q]``
            float64 for float64 input, else float32; numpy for numpy, on the input's device. Not
            differentiable.

        Raises
        ------
        NotFittedError
            Before `fit`.
        TypeError, ValueError
            Another number of columns, NaN or infinity.
        """
        return self._apply(self._transform, X, "n_features_in_")

    def fit_transform(self, X: Array, Y: Array) -> Array:
        """`fit`, then `transform` of the same X."""
        return self.fit(X, Y).transform(X)

    def score(self, X: Array, Y: Array) -> float:
        """``1 - ||g(X) - Y||_F^2 / ||Y - mean(Y)||_F^2``: 1 is perfect, 0 the mean of Y.

        It is ``1 - errors(X, Y).relative ** 2``, and scikit-learn's R2 with
        ``multioutput="variance_weighted"``.
        """
        return 1.0 - self.errors(X, Y).relative ** 2

    def errors(self, X: Array, Y: Array) -> AlignmentError:
        """Mean squared and relative error of ``g(X)`` as an estimate of Y.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `fit` and `transform`.
        """
        self._require_fitted()
        x, y = checked_pair(X, Y)
        self._require_width(x, "X", "n_features_in_")
        self._require_width(y, "Y", "n_features_out_")
        return self._errors(self._transform(x), y)

    def __sklearn_tags__(self) -> Tags:
        """What scikit-learn asks about an estimator; only scikit-learn calls this."""
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
        """Learn from checked rows."""

    @abstractmethod
    def _transform(self, x: Tensor) -> Tensor:
        """``g(x)`` of checked rows."""

    def _errors(self, predicted: Tensor, y: Tensor) -> AlignmentError:
        return alignment_error(predicted, y)

    def _apply(self, function: Any, rows: Array, width: str) -> Array:
        """`function` of checked rows, as numpy if they are."""
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
    """A finite ``[n, p]`` tensor, float64 for float64 and numpy's integers and else float32.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, what was wanted and what came.
    """
    if isinstance(rows, np.ndarray) and rows.dtype.kind in "iu":
        rows = rows.astype(np.float64)  # scikit-learn's estimators take whole numbers
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
    """Both sides of a pair: equal n, one device.

    Raises
    ------
    TypeError, ValueError
        As `checked_rows`; different n, fewer than 2 rows, different devices.
    """
    rows_x, rows_y = checked_rows(x, names[0]), checked_rows(y, names[1])
    if len(rows_x) != len(rows_y):
        raise ValueError(
            f"{names[1]}: wanted n = {len(rows_x)} rows as in {names[0]}, got {len(rows_y)}"
        )
    if rows_x.device != rows_y.device:
        raise ValueError(
            f"{names[1]}: wanted device {rows_x.device} as {names[0]}, got {rows_y.device}"
        )
    require_rows(rows_x, names[0], 2, "a fit and its errors")
    return rows_x, rows_y


def require_rows(rows: Tensor, name: str, least: int, reason: str) -> None:
    """A `TooFewRowsError` where there are fewer than `least` rows."""
    if len(rows) < least:
        raise TooFewRowsError(f"{name}: wanted at least {least} rows for {reason}, got {len(rows)}")


def alignment_error(predicted: Tensor, y: Tensor) -> AlignmentError:
    """Errors of predictions ``[n, q]``, summed in float64."""
    squared = float((predicted.double() - y.double()).square().sum())
    spread = float((y.double() - y.double().mean(0)).square().sum())
    relative = (squared / spread) ** 0.5 if spread else float("nan")
    return AlignmentError(squared / y.numel(), relative)
