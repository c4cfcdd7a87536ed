"""Exceptions for mistakes that the user can put right, and words that their messages share."""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

_NO_VALUE = object()
_OF_PYTHON = (ArithmeticError, AttributeError, LookupError, TypeError)
_FEW_NAMES, _MANY_NAMES = 6, 10  # of a message
# An argument in a text: its name and its value as JSON, whose characters are printable, between two
# control characters that no name, path or text of a message has.
_ARGUMENT = re.compile("\x02(.*?)\x03")


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error, or its type if it has no message.

    A line that ends with a colon goes on: the whole message is then made one line. The type stands
    before a message that Python itself makes, which says little without it.

    >>> first_line(ValueError("wanted one of:\\n(1) a file,\\n(2) a folder"))
    'wanted one of: (1) a file, (2) a folder'
    >>> first_line(KeyError("geluu"))
    "KeyError: 'geluu'"
    """
    text = str(error).strip()
    first = text.partition("\n")[0].rstrip()
    first = " ".join(text.split()) if first.endswith(":") else first
    kind = type(error).__name__
    return f"{kind}: {first}" if first and isinstance(error, _OF_PYTHON) else first or kind


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return a question that names the known name nearest to a misspelt one; "" if none is near.

    >>> did_you_mean("meen", ("cls", "mean"))
    " (did you mean 'mean'?)"
    """
    near = difflib.get_close_matches(word, list(names), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def require_known(name: str, given: str, names: Iterable[str]) -> None:
    """Raise UserError if the value of an argument is not among the known ones."""
    names = list(names)
    if given not in names:
        meant = did_you_mean(given, names)
        raise UserError(f"{argument(name, given)}{meant}: wanted {one_of(names, meant)}")


def one_of(choices: Iterable[str], meant: str = "") -> str:
    """Return the known names for a message: the first few where a question names the likely one.

    >>> one_of("abcdefghijk", " (did you mean 'k'?)")
    'one of a, b, c, d, e, f and 5 others'
    """
    names = list(choices)
    if not meant or len(names) <= _MANY_NAMES:
        return f"one of {', '.join(names)}"
    return f"one of {', '.join(names[:_FEW_NAMES])} and {len(names) - _FEW_NAMES} others"


@dataclass(frozen=True)
class Argument:
    """An argument of a function that a message names, with its value if the message gives it.

    A command has an option for the argument, and a sweep file has a key. `step` is the name of the
    step that takes the argument, where it is another than the one that raises.
    """

    name: str
    value: Any = _NO_VALUE
    step: str = ""

    @property
    def has_value(self) -> bool:
        """Whether the message gives the value."""
        return self.value is not _NO_VALUE


def in_python(argument: Argument) -> str:
    """Return an argument as Python spells it: ``kind='cls'``, or ``kind`` without a value.

    For another step it is ``extract(kind='cls')``, or ``extract(kind=...)``.
    """
    if argument.step:
        value = repr(argument.value) if argument.has_value else "..."
        return f"`{argument.step.replace('-', '_')}({argument.name}={value})`"
    return f"{argument.name}={argument.value!r}" if argument.has_value else argument.name


_spell: ContextVar[Callable[[Argument], str]] = ContextVar("spell", default=in_python)


@contextmanager
def spelling(spell: Callable[[Argument], str]) -> Iterator[None]:
    """Let `spell` spell the arguments of messages while the block runs, in this thread alone.

    The command sets it, and Python's spelling is the default. A thread that the block starts has
    the default, unless it runs in a copy of the context.
    """
    token = _spell.set(spell)
    try:
        yield
    finally:
        _spell.reset(token)


def spelled(message: str, spell: Callable[[Argument], str] | None = None) -> str:
    """Return a message on one line, its arguments spelled by `spell`, or as `spelling` has set."""
    chosen = spell or _spell.get()
    text = "".join(chosen(p) if isinstance(p, Argument) else p for p in parts_of(message))
    return " ".join(text.split())


def parts_of(message: str) -> tuple[str | Argument, ...]:
    """Return the texts and arguments of a message, in order."""
    texts = _ARGUMENT.split(message)  # text, argument, text, ..., text
    parts = [Argument(**json.loads(t)) if k % 2 else t for k, t in enumerate(texts)]
    return tuple(part for part in parts if part != "")


def argument(name: str, value: Any = _NO_VALUE, *, of: str = "") -> str:
    """Return the text that stands for an argument in the message of a `UserError`.

    `of` names the step that takes the argument, if the message advises another step.

    Examples
    --------
    >>> error = UserError(f"{argument('head_warmup', 0.5)}: wanted less")
    >>> str(error)
    'head_warmup=0.5: wanted less'
    >>> error.parts[0]
    Argument(name='head_warmup', value=0.5, step='')
    >>> str(UserError(f"{argument('permutations', 200, of='grid')} computes p-values"))
    '`grid(permutations=200)` computes p-values'
    """
    data = {"name": name, "step": of} | ({} if value is _NO_VALUE else {"value": value})
    return f"\x02{json.dumps(data, default=str)}\x03"


def option_name(name: str, several: bool = False) -> str:
    """Return the option of an argument; the option of a sequence is singular.

    >>> option_name("head_warmup"), option_name("methods", several=True)
    ('--head-warmup', '--method')
    """
    if several and name.endswith("ies"):
        name = f"{name.removesuffix('ies')}y"
    elif several:
        name = name.removesuffix("s")
    return f"--{name.replace('_', '-')}"


class UserError(Exception):
    """A mistake that the user can put right: a name, a file, a column, a missing connection.

    The message is a single line that names the argument or file, the wanted and the found. The
    command line prints the message and exits with code 2. Any other exception is a bug and shows
    its traceback.

    An argument has another spelling in each place where a user gives it: `argument` puts its name
    and value into the message as data, and ``str(error)`` spells them for Python, the command line
    or a sweep file (`spelling`).
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    @property
    def parts(self) -> tuple[str | Argument, ...]:
        """The message as texts and arguments, in order."""
        return parts_of(self.message)

    def __str__(self) -> str:
        return spelled(self.message)


class WriteError(UserError):
    """The system refused to write: no room, no permission. A resumable job keeps its progress."""


class ReadError(UserError):
    """The system refused to read: no permission, too many open files, a server that is away.

    The content of the file is unknown, and nothing may be concluded from it.
    """


class BusyError(UserError):
    """Another process is making the same output. A later attempt may find it done."""
