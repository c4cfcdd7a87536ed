"""Checks of options; each error names the argument, the wanted and the given value.

The options of a measure are checked before there are layers.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar, get_args

import numpy as np

from simcore._grid.inputs import NoLayersError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=str)
# Options of grids that are not the measure's.
OF_CALLS = ("max_memory", "progress")


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` with the known name nearest to ``given``; ``""`` if none."""
    near = difflib.get_close_matches(str(given), list(known), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def check_keywords(given: Iterable[str], known: tuple[str, ...], function: str) -> None:
    for keyword in given:
        if keyword not in known:
            meant = did_you_mean(keyword, known)
            raise TypeError(f"{keyword}{meant}: wanted {', '.join(known)} of {function}")


def keywords_of(function: Callable[..., object]) -> tuple[str, ...]:
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
    choices = wanted if isinstance(wanted, tuple) else get_args(wanted)
    if value not in choices:
        named = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
        raise ValueError(f"{name}: wanted {named}, got {value!r}{did_you_mean(value, choices)}")
    return value


def check_flag(value: bool, name: str) -> bool:
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
    return check_number(ridge, "ridge", "a number of at least 0", lambda v: 0 <= v < math.inf)


def check_max_memory(max_memory: int | None) -> int:
    """Return ``max_memory`` in bytes, and 0 for None: the operators read 0 as the default."""
    if max_memory is None:
        return 0
    wanted = "a positive number of bytes"
    check_number(max_memory, "max_memory", wanted, lambda v: 1 <= v < 2**63)
    return int(max_memory)


def check_measure_options(
    name: str,
    function: Callable[..., Any],
    options: Mapping[str, Any],
    # Hands on keywords of its call as options, and has keywords of its own.
    caller: Callable[..., Any] | None = None,
) -> None:
    # Every grid checks its options before it reads its layers, so it is called without layers, of
    # which it complains last. Values that fit some layers alone, such as a number of neighbours
    # above the number of rows, pass.
    fixed = function.keywords if isinstance(function, functools.partial) else ()
    parameters = {
        option: parameter
        for option, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and option not in (*OF_CALLS, *fixed)
    }
    refuse_unknown_options(name, tuple(parameters), options, caller)
    for option, parameter in parameters.items():
        if parameter.default is parameter.empty and option not in options:
            raise TypeError(f"{option}: wanted a value for measure {name!r}, got none")
    try:
        function([], None, **options)
    except NoLayersError:
        return


def refuse_unknown_options(
    name: str,
    known: tuple[str, ...],
    options: Iterable[str],
    caller: Callable[..., Any] | None = None,
) -> None:
    """Raise a TypeError for an option that measure ``name`` lacks; `caller` has further ones."""
    for option in options:
        if option not in known:
            own = () if caller is None else own_keywords(caller)
            meant = did_you_mean(option, (*known, *own))
            some = " or ".join(known) if known else "no options"
            some += f" of measure {name!r}"
            if caller is not None:
                some += f", or {', '.join(own)} of {caller.__name__}"
            raise TypeError(f"{option}{meant}: wanted {some}")


def own_keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the keywords of a function that no position can give."""
    parameters = inspect.signature(function).parameters
    return tuple(name for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY)


def check_function_options(
    name: str, function: Callable[..., Any], options: Mapping[str, Any]
) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # written in another language: no signature to check
        return
    try:
        signature.bind(None, None, **options)
    except TypeError as error:
        raise TypeError(
            f"measure: wanted a function of two lists of layers and {', '.join(options) or 'no'} "
            f"options, got {name}{signature}: {error}"
        ) from None
