"""Checks of the options of a measure before there are layers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from simcore._grid.inputs import NoLayersError
from simcore._grid.options import did_you_mean

# Options of grids that are not the measure's.
OF_CALLS = ("max_memory", "progress")


def check_measure_options(
    name: str,
    function: Callable[..., Any],
    options: Mapping[str, Any],
    # Hands on keywords of its call as options, and has keywords of its own.
    caller: Callable[..., Any] | None = None,
) -> None:
    """Raise unless a grid of simcore takes these options with these values."""
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
    """Raise a TypeError unless a function takes two lists of layers and these options."""
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
