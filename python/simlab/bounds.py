"""Types of numbers with a least value, which commands and functions check alike."""

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from numbers import Real
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin

from simlab.errors import UserError, argument, did_you_mean, one_of


@dataclass(frozen=True)
class Least:
    """The least value of an annotated number."""

    value: int


Count = Annotated[int, Least(1)]
FromZero = Annotated[int, Least(0)]
Clusters = Annotated[int, Least(2)]
Steps = Annotated[int, Least(2)]  # the first and the last
Length = Annotated[int, Least(3)]  # two special tokens and another
Bytes = Annotated[float, Least(1)]  # 1e9 is easier to type than nine zeros

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")
_NAMES = re.compile(r"\w+")


def bounded(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function raise UserError for an argument below the least value of its annotation."""
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind_partial(*args, **kwargs).arguments
        _check(_bounds_of(function), given)
        return function(*args, **kwargs)

    return checked


def check_fields(options: Any) -> None:
    """Raise UserError for a field of a dataclass below the least value of its annotation."""
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    check_values(type(options), values)


def replaced(options: D, changes: Mapping[str, Any], prefix: str = "") -> D:
    """Return a dataclass with fields replaced, a tuple by a single text too.

    `prefix` begins the names of fields in messages.
    """
    check_names(type(options), changes, prefix)
    tuples = {name for name in changes if isinstance(getattr(options, name), tuple)}
    values = {
        name: (value,) if isinstance(value, str) and name in tuples else value
        for name, value in changes.items()
    }
    return dataclasses.replace(options, **values)  # type: ignore[type-var]


def check_names(options: type, given: Iterable[str], prefix: str = "") -> None:
    """Raise UserError for a name that no field of a dataclass has."""
    names = [f"{prefix}{field.name}" for field in dataclasses.fields(options)]
    for name in given:
        if f"{prefix}{name}" not in names:
            meant = did_you_mean(f"{prefix}{name}", names)
            raise UserError(f"{argument(prefix + name)}{meant}: wanted {one_of(names, meant)}")


def check_values(options: type, given: Mapping[str, Any]) -> None:
    """Raise UserError for names and values of fields of a dataclass, as `check_fields` does."""
    check_names(options, given)
    _check({k: v for base in options.__mro__ for k, v in _bounds_of(base).items()}, given)


def _check(bounds: Mapping[str, int], given: Mapping[str, Any]) -> None:
    for name, least in bounds.items():
        given_value = given.get(name)
        values = given_value if isinstance(given_value, Sequence) else (given_value,)
        for value in values:
            if isinstance(value, Real) and not float(value) >= least:  # nan is below every bound
                raise UserError(f"{argument(name)}: wanted {least} or more, found {value}")


@cache
def _bounds_of(holder: Any) -> dict[str, int]:
    """Return the least values of the parameters of a function, or of a class's own fields."""
    names = vars(sys.modules[holder.__module__])
    texts = inspect.get_annotations(holder)
    return {name: least for name, text in texts.items() for least in _least_in(text, names)}


def _least_in(annotation: Any, names: Mapping[str, Any]) -> Iterator[int]:
    """Yield the least values of the types that an annotation, written as text, names."""
    types = map(names.get, _NAMES.findall(annotation)) if isinstance(annotation, str) else ()
    for kind in types:
        if get_origin(kind) is Annotated:
            yield from (bound.value for bound in get_args(kind) if isinstance(bound, Least))
