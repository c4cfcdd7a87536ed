"""A step: a function of simlab, and the parameters that its command and its callers give it.

The parameters are read where they are declared: from the signature of the function, from the
dataclass of options whose fields the function takes as keywords, and from the numpydoc of both.
"""

from __future__ import annotations

import builtins
import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from inspect import get_annotations
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from simlab.bounds import Least
from simlab.errors import option_name

REQUIRED = inspect.Parameter.empty
TASK_OPTIONS, _TASK_OPTIONS = "task_options", "simlab.tasks:TaskOptions"
HEADS = "head_"  # the fields of a recipe of heads inside of other options
# Parameters that hold options, whose fields are parameters themselves.
_HOLDERS = ("options", TASK_OPTIONS, "changes")
_NAMES = re.compile(r"\*{0,2}[a-z_]+(, \*{0,2}[a-z_]+)*")
_AS_FOR = re.compile(r"As for `(\w+)`\.")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a step."""

    name: str
    kinds: tuple[Any, ...]  # types that a value may have, without None: `(int, float)`
    several: bool = False  # whether the value is a sequence of these types
    default: Any = None  # `REQUIRED` if the function has none
    text: str = ""  # help, from the numpydoc of the function
    least: float | None = None  # the least value that is allowed
    is_argument: bool = False  # whether the command takes the value by its place, without an option
    metavar: str = ""  # what help shows for the value; with several types, the values of one option

    @property
    def option(self) -> str:
        """The option of the command: ``--method`` of the sequence `methods`."""
        return option_name(self.name, self.several)


@dataclass(frozen=True)
class Step:
    """A step of simcore: the one declaration of which command and section of a sweep are made."""

    name: str
    path: str  # the function, as `module:name`
    text: str = ""  # of a command; the first line is the summary
    examples: tuple[str, ...] = ()  # commands, without the word `simcore`
    options: str = ""  # the dataclass whose fields the function takes as keywords, as `module:name`
    without: tuple[str, ...] = ()  # parameters that the command does not have
    extra: tuple[Parameter, ...] = ()  # parameters of the command alone
    optional: tuple[str, ...] = ()  # parameters without a default that the command may leave out
    has_paper: bool = True  # whether a paper may choose parameters of the command
    notes_path: str = ""  # a function that returns paragraphs for the end of the command's help

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The function of the step; its module is imported when it is asked for."""
        return _load(self.path)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in the order of the command's help."""
        of_function = parameters_of(self.function)
        first = [p for p in of_function if p.is_argument or p.name == "out"]
        last = [p for p in of_function if p.name == "overwrite"]
        between = [p for p in of_function if p not in (*first, *last)]
        # The name of a recipe sets the defaults of its fields.
        named = any(p.name == "recipe" for p in of_function)
        options = fields_of(_load(self.options), named=named) if self.options else []
        every = [*first, *self.extra, *between, *options, *self._task_fields, *last]
        shown = [p for p in every if p.name not in self.without]
        free = {
            p.name: dataclasses.replace(p, default=None) for p in shown if p.name in self.optional
        }
        return tuple(free.get(p.name, p) for p in shown)

    def notes(self) -> list[str]:
        """Return the paragraphs for the end of the command's help."""
        lines: list[str] = _load(self.notes_path)()
        return lines

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the function among the values of a command."""
        of_task = {p.name for p in self._task_fields}
        of_function = {p.name for p in self.parameters if p not in self.extra} - of_task
        arguments = {
            name: value
            for name, value in values.items()
            if name in of_function and (value is not None or name in self.optional)
        }
        if any(values.get(name) is not None for name in of_task):
            arguments[TASK_OPTIONS] = self.task_options(values)
        return arguments

    def task_options(self, values: Mapping[str, Any]) -> Any:
        """Return the `TaskOptions` among the values of a command."""
        names = [p.name for p in self._task_fields if p.name in values]
        return _load(_TASK_OPTIONS)(**{name: values[name] for name in names})

    @cached_property
    def _signature(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters

    @cached_property
    def _task_fields(self) -> list[Parameter]:
        return fields_of(_load(_TASK_OPTIONS)) if TASK_OPTIONS in self._signature else []


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters of a function, without those that hold other parameters."""
    texts, parameters = texts_of(function), []
    for name, p in inspect.signature(function).parameters.items():
        if name in _HOLDERS or p.kind is p.VAR_KEYWORD:
            continue
        hint = _evaluated(p.annotation, function)
        is_argument = p.default is REQUIRED and p.kind is not p.KEYWORD_ONLY and name != "out"
        parameter = _parameter(name, hint, p.default, texts.get(name, ""), is_argument)
        if p.kind is p.VAR_POSITIONAL:
            parameter = dataclasses.replace(parameter, several=True)
        if parameter.kinds:  # nobody can type a function
            parameters.append(parameter)
    return parameters


def fields_of(options: type, prefix: str = "", *, named: bool = False) -> list[Parameter]:
    """Return the fields of a dataclass as parameters; the fields of a dataclass in it are added."""
    texts = {
        name: text for base in reversed(options.__mro__) for name, text in texts_of(base).items()
    }
    parameters = []
    # As in the signature, what is given by keyword alone comes last.
    for field in sorted(dataclasses.fields(options), key=attrgetter("kw_only")):
        holder = next(base for base in options.__mro__ if field.name in get_annotations(base))
        hint = _evaluated(field.type, holder)
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            parameters += fields_of(hint, HEADS)
            continue
        default = None if named or field.default is dataclasses.MISSING else field.default
        parameters.append(
            _parameter(f"{prefix}{field.name}", hint, default, texts.get(field.name, ""))
        )
    return parameters


def texts_of(holder: Any) -> dict[str, str]:
    """Return the texts of the parameters in the numpydoc of a function or class."""
    return {name: _resolved(name, text) for name, text in _own_texts(holder).items()}


def _own_texts(holder: Any) -> dict[str, str]:
    texts: dict[str, list[str]] = {}
    names: list[str] = []
    lines = [] if holder is object else (inspect.getdoc(holder) or "").splitlines()
    for line, below in pairwise([*lines, ""]):
        if _NAMES.fullmatch(line) and below.startswith("    "):
            names = [name.strip("* ") for name in line.split(",")]
            texts |= {name: [] for name in names}
        elif line.startswith("    "):
            for name in names:
                texts[name].append(line.strip())
        elif line:
            names = []
    return {name: " ".join(text) for name, text in texts.items()}


def _resolved(name: str, text: str) -> str:
    """Return the text of parameter `name` with the text that it refers to, if it does."""
    reference = _AS_FOR.match(text)
    if reference is None:
        return text
    others = _own_texts(_load(f"simlab:{reference[1]}"))
    return _resolved(name, others[name]) + text[reference.end() :]


def _parameter(
    name: str, hint: Any, default: Any, text: str, is_argument: bool = False
) -> Parameter:
    """Return the parameter of an annotation, which may be a union, a sequence and bounded."""
    kinds: list[Any] = []
    several, least, metavar = False, None, ""
    for member in _members(hint):
        if isinstance(member, Least):
            least = member.value
        elif get_origin(member) is Mapping:
            several, kinds, metavar = True, [Mapping], "NAME=VALUE"
        elif get_origin(member) in (tuple, Sequence):
            several = True
            for kind in _members(get_args(member)[0]):
                if isinstance(kind, Least):
                    least = kind.value
                elif kind not in kinds:
                    kinds.append(kind)
        elif member in (bool, int, float, str, Path) and member not in kinds:
            kinds.append(member)
    if several and {str, int} <= {*kinds}:  # a text such as "0..4" stands for the numbers
        several, kinds = False, [str]
        default = ",".join(map(str, default)) if isinstance(default, tuple) else default
    return Parameter(name, tuple(kinds), several, default, text, least, is_argument, metavar)


def _members(hint: Any) -> Iterator[Any]:
    """Yield the members of a union of annotations, each before its bounds."""
    if get_origin(hint) in (Union, UnionType) or get_origin(hint) is Annotated:
        for member in get_args(hint):
            yield from _members(member)
    else:
        yield hint


class _Unknown(type):
    """The type of names that only type checkers import, such as ``pd`` in ``pd.DataFrame``."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class _Names(dict[str, Any]):
    """Names of a module; a name that only type checkers import stands for itself."""

    def __missing__(self, name: str) -> Any:
        if name == "Sequence":
            return Sequence
        return _Unknown(name, (), {})


def _evaluated(annotation: Any, holder: Any) -> Any:
    """Return the type that an annotation writes down in the module of `holder`."""
    if not isinstance(annotation, str):
        return annotation
    names = vars(sys.modules[holder.__module__])
    return eval(annotation, {}, _Names(names | vars(builtins)))


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return attrgetter(name)(import_module(module))
