"""The tables of papers, and the options that a paper chooses for a command."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simlab.errors import UserError, argument, option_name, require_known


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


def _read(file: Path) -> PaperPreset:
    """Read the table of a paper, whose name is that of the file."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        choices = [
            Choice(command, option, **row, when=group.get("when", {}))
            for group in table.pop("choices", [])
            for command in _listed(group["command"])
            for option, row in group["options"].items()
        ]
        differences = [Difference(**row) for row in table.pop("differences", [])]
        return PaperPreset(file.stem, **table, choices=(*choices,), differences=(*differences,))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file}: wanted the table of a paper, found: {error}") from error


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def user_tables() -> list[Path]:
    """Return the tables in the folder that ``SIMCORE_TABLES`` names."""
    folder = os.environ.get("SIMCORE_TABLES")
    if not folder:
        return []
    if not Path(folder).expanduser().is_dir():
        raise UserError(f"SIMCORE_TABLES: wanted a folder, found no folder {folder}")
    return sorted(Path(folder).expanduser().glob("*.toml"))


_PACKAGED = [
    Path(__file__).with_name(f"{name}.toml") for name in ("phang2021", "wu2020", "ren2023")
]
_OF_USER = [file for file in user_tables() if file.name != "tasks.toml"]
PAPERS: Mapping[str, PaperPreset] = {file.stem: _read(file) for file in (*_PACKAGED, *_OF_USER)}


def find_paper(name: str) -> PaperPreset:
    """Return paper `name`; raise UserError with all names if there is no such paper."""
    require_known("paper", name, PAPERS)
    return PAPERS[name]


def paper_options(paper: str, command: str, **given: Any) -> dict[str, Any]:
    """Return the options that a paper chooses for a command, as keywords of its function.

    Parameters
    ----------
    paper
        ``phang2021``, ``wu2020`` or ``ren2023``; `simcore papers` prints their tables.
    command
        Name of the command, such as ``grid`` or ``freeze-study``.
    **given
        Options that you choose yourself, and the ``task``. Choices that depend on them are made
        for them, and they are not among the options that are returned.

    Raises
    ------
    UserError
        There is no such paper, or it has no choices for the command.

    Examples
    --------
    >>> from simlab import paper_options
    >>> paper_options("wu2020", "grid", measure="cka")
    {'kernel': 'linear', 'estimator': 'biased'}
    >>> paper_options("ren2023", "finetune", task="mrpc")["epochs"]
    5
    """
    require_choices(paper, command)
    chosen = choices_of(paper, command, given)
    return {choice.option: choice.value for choice in chosen.values()}


def require_choices(paper: str, command: str) -> None:
    """Raise UserError if there is no such paper, or if it has no choices for the command."""
    if any(choice.command == command for choice in find_paper(paper).choices):
        return
    names = [p.name for p in PAPERS.values() if any(c.command == command for c in p.choices)]
    raise UserError(
        f"{argument('paper', paper)}: wanted a paper that has choices for `simcore {command}` "
        f"({', '.join(names) or 'none has'})"
    )


def choices_of(paper: str, command: str, given: Mapping[str, Any]) -> dict[str, Choice]:
    """Return the choices that hold beside the options `given`, by the name of the option."""
    rows = [choice for choice in find_paper(paper).choices if choice.command == command]
    filled = {name: value for name, value in given.items() if value is not None}
    chosen: dict[str, Choice] = {}
    for row in rows:  # an option stands above the options that depend on it
        if row.option in filled:
            continue
        values = filled | {option: choice.value for option, choice in chosen.items()}
        if all(_holds(values.get(name), wanted) for name, wanted in row.when.items()):
            chosen[row.option] = row
    return chosen


def _holds(value: Any, wanted: Sequence[str]) -> bool:
    """Return whether `value`, or one of several, is wanted; a task is wanted by its name."""
    several = value if isinstance(value, list | tuple) else [value]
    return any(str(entry).partition(":")[0].lower() in wanted for entry in several)


def setting(choice: Choice) -> str:
    """Return the option and its value as they are typed on the command line."""
    value = choice.value
    name = option_name(choice.option, isinstance(value, list))
    if value is True:
        return name
    if value is False:
        return f"--no-{name.removeprefix('--')}"
    return " ".join(f"{name} {_text(entry)}" for entry in _listed(value))


def conditions(choice: Choice) -> str:
    """Return the conditions of a choice in a few words."""
    return ", ".join(f"{name} {' or '.join(wanted)}" for name, wanted in choice.when.items())


def _text(value: object) -> str:
    return f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)
