"""The options of the measures of ``simcore grid``, and the values that they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

ESTIMATORS = ("biased", "unbiased")
BOTH = "both"


@dataclass(frozen=True)
class Option:
    """The values that an option takes: `wanted` describes them, `accepts` checks a value.

    `kinds` are the types that a value may have.
    """

    wanted: str
    accepts: Callable[[Any], bool]
    kinds: tuple[type, ...] = (str,)


def _one_of(*names: str) -> Option:
    return Option(", ".join(names[:-1]) + f" or {names[-1]}", lambda value: value in names)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count_or_share(value: Any) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return value >= 1
    return value is None or (isinstance(value, float) and 0 < value <= 1)


NUMBER, FLAG = (float,), (bool,)
COUNT_OR_SHARE = (int, float)
OPTIONS = {
    "estimator": _one_of(*ESTIMATORS, BOTH),
    "kernel": _one_of("linear", "rbf"),
    "bandwidth": Option(
        "a positive number", lambda value: _is_number(value) and 0 < value < inf, NUMBER
    ),
    "reduction": _one_of("mean", "r2"),
    "truncation": Option(
        "a share of the variance (0.99) or a count (20)", _is_count_or_share, COUNT_OR_SHARE
    ),
    "top_k": Option("a count (50) or a share (0.1)", _is_count_or_share, COUNT_OR_SHARE),
    "standardize": Option("a flag", lambda value: isinstance(value, bool), FLAG),
    "correlation": _one_of("pearson", "spearman"),
    "causal": Option("a flag", lambda value: isinstance(value, bool), FLAG),
    "k": Option("a count from 1", lambda value: type(value) is int and value >= 1, (int,)),
    "metric": _one_of("cosine", "euclidean", "inner"),
    "norm": _one_of("frobenius", "spectral"),
    "ridge": Option(
        "a number from 0", lambda value: _is_number(value) and 0 <= value < inf, NUMBER
    ),
}
