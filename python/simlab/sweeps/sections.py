"""Helpers of all sections of a sweep file: keys, lists, seeds, and wrong values.

A section is a pydantic model that refuses unknown keys and names the nearest known one. Parameters
of a step (`steps.record`) become keys of a section by `keys_of`, so that a new option is a key of
the file at once, with the type and the least value that the command has.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar, Union

from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from simlab.errors import UserError
from simlab.steps.record import Parameter
from simlab.steps.words import key_and_rest
from simlab.training.recipes import parse_seeds

OWN_ERROR = "sweep:"  # the type of our errors; the key that is wrong follows, if it is below
_SIZES = TypeAdapter(ByteSize)


class Section(BaseModel):
    """A table of the file; an unknown key is an error that names the nearest key."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)

    @model_validator(mode="before")
    @classmethod
    def _take(cls, value: Any) -> Any:
        if value is True:  # ``skip = true`` is short for an empty table
            return {}
        if isinstance(value, dict):
            for key in value:
                if key not in cls.model_fields:
                    known = cls.model_fields
                    raise wrong(f"one of {', '.join(known)}", key, known, key=str(key))
        return value

    def given(self) -> dict[str, Any]:
        """Return the keys that the file gives, with their values."""
        return {name: getattr(self, name) for name in self.model_fields_set}


def wrong(
    wanted: str, found: Any, known: Collection[str] = (), key: str = ""
) -> PydanticCustomError:
    """Return the error of a value: the wanted, the found, and the nearest of `known` values.

    Parameters
    ----------
    key
        The key below the value that is wrong; by default the value itself is.
    """
    near = difflib.get_close_matches(str(found), list(known), 1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    return _error(f"wanted {wanted}, found {found!r}{meant}", key)


def checked(check: Any, *arguments: Any) -> None:
    """Call ``check(*arguments)``, and raise its UserError as the error of the key that it names."""
    try:
        check(*arguments)
    except UserError as error:
        key, rest = key_and_rest(error)
        raise _error(rest, key) from error


@contextmanager
def under_key(section: str) -> Iterator[None]:
    """Turn an error that names an argument into one that names a key of `section`.

    Raises
    ------
    UserError
        The block raised one.
    """
    try:
        yield
    except UserError as error:
        key, rest = key_and_rest(error)
        if not key:
            raise
        raise UserError(f"sweep, key {section}.{key}: {rest}") from error


def _error(text: str, key: str = "") -> PydanticCustomError:
    return PydanticCustomError(f"{OWN_ERROR}{key}", text)


def _several(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _seeds(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return parse_seeds(value)
        except UserError:
            raise wrong("seeds such as 3, '0..4' or [0, 3, 7]", value) from None
    seeds = _several(value)
    if not all(isinstance(seed, int) and not isinstance(seed, bool) for seed in seeds):
        raise wrong("seeds such as 3, '0..4' or [0, 3, 7]", value)
    twice = next((seed for seed in seeds if seeds.count(seed) > 1), None)
    if not seeds or min(seeds) < 0 or twice is not None:
        raise wrong("seeds from 0, each once", value)
    return seeds


def _size(value: Any) -> Any:
    try:
        size = _SIZES.validate_python(value)
    except ValidationError:
        size = 0
    if isinstance(value, bool) or size <= 0:
        raise wrong("a size such as '200 GB'", value)
    return int(size)


def one_of(*names: str) -> BeforeValidator:
    """Return a check that a value is one of `names`, whose error names the nearest one."""

    def check(value: Any) -> Any:
        if value not in names:
            raise wrong(f"one of {', '.join(names)}", value, names)
        return value

    return BeforeValidator(check)


T = TypeVar("T")
Several = Annotated[tuple[T, ...], BeforeValidator(_several)]
Seeds = Annotated[tuple[int, ...], BeforeValidator(_seeds)]
Size = Annotated[int, BeforeValidator(_size)]


def keys_of(
    *parameters: Parameter,
    without: Collection[str] = (),
    only: Collection[str] | None = None,
    name: str = "Keys",
    module: str = __name__,
) -> type[Section]:
    """Return a section whose keys are parameters of a step; all may be absent.

    Parameters
    ----------
    without, only
        Parameters that are no keys, or the only ones that are.
    """
    fields: dict[str, Any] = {
        one.name: (_type_of(one) | None, None)
        for one in parameters
        if one.name not in without and (only is None or one.name in only)
    }
    missing = {*without, *(only or ())} - {one.name for one in parameters}
    if missing:
        raise TypeError(f"wanted names of parameters, found {', '.join(sorted(missing))}")
    return create_model(name, __base__=Section, __module__=module, **fields)


def _type_of(parameter: Parameter) -> Any:
    """Return the type of a key; a number or word may stand for a sequence of one."""
    kind: Any = Union[parameter.kinds]  # noqa: UP007
    if parameter.least is not None:
        kind = Annotated[kind, Field(ge=parameter.least)]
    return Several[kind] if parameter.several else kind
