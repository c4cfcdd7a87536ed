"""The pages of the documentation: their snippets, and the commands in those."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Made by the build of the site from other sources, which have tests of their own.
GENERATED = ("gallery", "notebooks", "api", "generated", "_build")
SHELLS = ("sh", "bash", "shell", "console")
FEW = {"heldout": 24, "train": 24}  # rows
_SIZE = re.compile(r"\b(train|heldout)(_size ?= ?)\d+")
_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<language>[\w{}-]*)[^\n]*\n"
    r"(?P<text>.*?)^(?P=indent)(?P=fence) *$",
    re.DOTALL | re.MULTILINE,
)
_COMMENT = re.compile(r"(^|\s)#.*$", re.MULTILINE)
_BETWEEN = re.compile(r"&&|\|\||[;|\n]|\b(?:do|then|done|fi)\b")
_ASSIGNED = re.compile(r"[A-Z_]+=\S*")


@dataclass(frozen=True)
class Snippet:
    """A block of code of a page; `line` is the number of its first line."""

    page: Path
    language: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Return every page of prose that the project writes, in order."""
    docs = [
        page
        for page in (ROOT / "docs").rglob("*.md")
        if not set(page.relative_to(ROOT).parts) & set(GENERATED)
    ]
    return [*sorted(ROOT.glob("*.md")), *sorted(docs)]


def snippets(page: Path, *languages: str) -> list[Snippet]:
    """Return the blocks of code of a page in some languages, in order."""
    text = page.read_text()
    found = []
    for match in _FENCE.finditer(text):
        if match["language"] in languages:
            lines = match["text"].splitlines()
            code = "\n".join(line.removeprefix(match["indent"]) for line in lines) + "\n"
            found.append(
                Snippet(page, match["language"], code, text[: match.start()].count("\n") + 2)
            )
    return found


def with_few_rows(text: str) -> str:
    """Return Python or a sweep file whose tasks have as few rows as `FEW` says.

    >>> with_few_rows("TaskOptions(train_size=400)")
    'TaskOptions(train_size=24)'
    """
    return _SIZE.sub(lambda size: f"{size[1]}{size[2]}{FEW[size[1]]}", text)


def commands(text: str) -> Iterator[list[str]]:
    """Return the words of every simple command of a shell block.

    Comments, redirections, assignments and the words of loops are left out. ``$seed`` and other
    variables stand for 1, as the first round of a loop would have it.

    >>> list(commands("for seed in 1 2; do simcore skip runs/ft-$seed rt --out x.parquet; done"))
    [['for', 'seed', 'in', '1', '2'], ['simcore', 'skip', 'runs/ft-1', 'rt', '--out', 'x.parquet']]
    """
    joined = text.replace("\\\n", " ")
    for part in _split(_COMMENT.sub("", joined)):
        words = shlex.split(re.sub(r"\$\{?\w+\}?", "1", part))
        while words and _ASSIGNED.fullmatch(words[0]):
            words.pop(0)
        words = [word for word in words if word not in ("export", "&")]
        if ">" in words:
            words = words[: words.index(">")]
        if words:
            yield words


def _split(text: str) -> list[str]:
    """Cut a block at what stands between its commands, but not inside quotes."""
    parts, start = [], 0
    quoted = [match.span() for match in re.finditer(r"'[^']*'|\"[^\"]*\"", text)]
    for match in _BETWEEN.finditer(text):
        if any(first <= match.start() < last for first, last in quoted):
            continue
        parts.append(text[start : match.start()])
        start = match.end()
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]
