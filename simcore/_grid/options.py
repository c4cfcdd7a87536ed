"""Checks of options; each error names the argument, the wanted and the given value."""

import difflib
import functools
import inspect
import math
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar, get_args

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=str)


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` with the known name nearest to ``given``; ``""`` if none."""
    near = difflib.get_close_matches(str(given), list(known), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def check_keywords(given: Iterable[str], known: tuple[str, ...], function: str) -> None:
    """Raise a TypeError unless a function has all the keywords of a call."""
    for keyword in given:
        if keyword not in known:
            meant = did_you_mean(keyword, known)
            raise TypeError(f"{keyword}{meant}: wanted {', '.join(known)} of {function}")


def keywords_of(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the names that a call may give as keywords."""
    return tuple(
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    )


def checked_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function, or an ``__init__``, answer a misspelt keyword with the keywords it has."""
    known = tuple(name for name in keywords_of(function) if name != "self")
    label = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        check_keywords(kwargs, known, label)
        return function(*args, **kwargs)

    return call


def check_choice(value: C, name: str, wanted: Any) -> C:
    """Return ``value`` if it is one of the strings of a `Literal` or tuple, else raise an error."""
    choices = wanted if isinstance(wanted, tuple) else get_args(wanted)
    if value not in choices:
        named = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
        raise ValueError(f"{name}: wanted {named}, got {value!r}{did_you_mean(value, choices)}")
    return value


def check_flag(value: bool, name: str) -> bool:
    """Return ``value`` if it is True or False, else raise a TypeError."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: wanted True or False, got {value!r}")
    return bool(value)


def check_count(value: object, name: str, least: int | None = 1) -> int:
    """Return ``value`` as an int; ``least=None`` allows every integer."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name}: wanted an integer, got {value!r}")
    if least is not None and value < least:
        raise ValueError(f"{name}: wanted at least {least}, got {value}")
    return int(value)


def check_number(value: Any, name: str, wanted: str, fits: Callable[[Any], bool]) -> float:
    """Return ``value`` as a float if it is a number that ``fits``; True and False are none."""
    if isinstance(value, Real) and not isinstance(value, bool) and fits(value):
        return float(value)
    raise ValueError(f"{name}: wanted {wanted}, got {value!r}")


def check_ridge(ridge: float) -> float:
    """Return ``ridge`` as a float if it is a finite number of at least 0."""
    return check_number(ridge, "ridge", "a number of at least 0", lambda v: 0 <= v < math.inf)


def check_max_memory(max_memory: int | None) -> int:
    """Return ``max_memory`` in bytes, and 0 for None: the operators read 0 as the default."""
    if max_memory is None:
        return 0
    wanted = "a positive number of bytes"
    check_number(max_memory, "max_memory", wanted, lambda v: 1 <= v < 2**63)
    return int(max_memory)
