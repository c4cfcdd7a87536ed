"""The options of the measures of ``simcore grid``, and the values that they take."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import inf
from types import NoneType
from typing import Annotated, Any, get_args

ESTIMATORS = ("biased", "unbiased")
BOTH = "both"


@dataclass(frozen=True)
class Option:
    """The values that an option takes: `wanted` describes them, `accepts` checks a value.

    `kinds` are the types that a value may have.
    """

    wanted: str
    accepts: Callable[[Any], bool]
    kinds: tuple[type, ...] = ()


def _one_of(*names: str) -> Option:
    return Option(", ".join(names[:-1]) + f" or {names[-1]}", lambda value: value in names)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count_or_share(value: Any) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return value >= 1
    return value is None or (isinstance(value, float) and 0 < value <= 1)


_FLAG = Option("a flag", lambda value: isinstance(value, bool))


@dataclass(frozen=True)
class MeasureOptions:
    """The options of all measures; each measure takes some, and has defaults of its own.

    Attributes
    ----------
    estimator
        Estimator of CKA, CKNNA: ``biased``, ``unbiased`` or ``both``.
    kernel
        Kernel of CKA: ``linear`` or ``rbf``.
    bandwidth
        Width of the RBF kernel, in median distances.
    reduction
        Reduction of canonical correlations: ``mean`` or ``r2``.
    truncation
        Components to keep: a share of the variance (0.99) or a count (20).
    standardize
        Scale columns to unit variance first.
    top_k
        Average only the best neurons of X, or the largest canonical correlations: a count (50) or a
        share (0.1).
    correlation
        Correlation of RSA: ``pearson`` or ``spearman``.
    causal
        For attention: use the lower triangle only.
    k
        Number of neighbours (knn-..., cknna), such as 10.
    metric
        Nearness of rows: by ``cosine``, ``euclidean`` or ``inner`` products.
    norm
        Norm of the RSM difference: ``frobenius`` or ``spectral``.
    ridge
        Ridge of GULP, in units of the total variance.
    rows
        Rows of a draw of RTD, such as 500.
    draws
        Number of draws of RTD, such as 10.
    """

    estimator: Annotated[str | None, _one_of(*ESTIMATORS, BOTH)] = None
    kernel: Annotated[str | None, _one_of("linear", "rbf")] = None
    bandwidth: Annotated[
        float | None,
        Option("a positive number", lambda value: _is_number(value) and 0 < value < inf),
    ] = None
    reduction: Annotated[str | None, _one_of("mean", "r2")] = None
    truncation: Annotated[
        int | float | None,
        Option("a share of the variance (0.99) or a count (20)", _is_count_or_share),
    ] = None
    standardize: Annotated[bool, _FLAG] = False
    top_k: Annotated[
        int | float | None, Option("a count (50) or a share (0.1)", _is_count_or_share)
    ] = None
    correlation: Annotated[str | None, _one_of("pearson", "spearman")] = None
    causal: Annotated[bool, _FLAG] = False
    k: Annotated[
        int | None, Option("a count from 1", lambda value: type(value) is int and value >= 1)
    ] = None
    metric: Annotated[str | None, _one_of("cosine", "euclidean", "inner")] = None
    norm: Annotated[str | None, _one_of("frobenius", "spectral")] = None
    ridge: Annotated[
        float | None,
        Option("a number from 0", lambda value: _is_number(value) and 0 <= value < inf),
    ] = None
    rows: Annotated[
        int | None, Option("a count from 3", lambda value: type(value) is int and value >= 3)
    ] = None
    draws: Annotated[
        int | None, Option("a count from 1", lambda value: type(value) is int and value >= 1)
    ] = None


def _option_of(annotation: Any) -> Option:
    """Return the option in an annotation, with the types of its values."""
    types, option = get_args(annotation)
    kinds = tuple(kind for kind in get_args(types) or (types,) if kind is not NoneType)
    return replace(option, kinds=kinds)


OPTIONS = {field.name: _option_of(field.type) for field in fields(MeasureOptions)}
