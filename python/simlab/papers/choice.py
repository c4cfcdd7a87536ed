"""Rows of the tables of papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simlab.errors import option_name


@dataclass(frozen=True)
class Choice:
    """The value that a paper chooses for an option of a command."""

    command: str  # such as `freeze-study`
    option: str  # the parameter: `batch_size` of `--batch-size`
    value: Any  # that we take
    why: str  # whether `value` follows the text or the code, and why
    text: str = "not stated"  # what the text of the paper says, and in which section
    code: str = "not published"  # what the published code of the authors does
    # Values of other options, or of the argument `task`, with which the choice holds.
    when: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """A difference between text and code, or between both and us, that no option covers."""

    about: str  # the command or measure that differs
    why: str
    text: str = "not stated"
    code: str = "not published"


@dataclass(frozen=True)
class PaperPreset:
    """A paper and its tables."""

    name: str  # for `--paper`
    title: str  # authors, title and place of publication
    published: str  # which code the authors published
    choices: tuple[Choice, ...]
    differences: tuple[Difference, ...] = ()


def setting(choice: Choice) -> str:
    """Return the option and its value as they are typed on the command line."""
    value = choice.value
    name = option_name(choice.option, isinstance(value, list))
    if value is True:
        return name
    if value is False:
        return f"--no-{name.removeprefix('--')}"
    several = value if isinstance(value, list) else [value]
    return " ".join(f"{name} {_text(entry)}" for entry in several)


def conditions(choice: Choice) -> str:
    """Return the conditions of a choice in a few words."""
    return ", ".join(f"{name} {' or '.join(wanted)}" for name, wanted in choice.when.items())


def _text(value: object) -> str:
    return f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)
