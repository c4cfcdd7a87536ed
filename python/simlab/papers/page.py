"""The page ``docs/results/papers.md``, made from the tables by ``python -m simlab.papers.page``."""

from __future__ import annotations

from collections.abc import Sequence

from simlab.errors import option_name
from simlab.papers.choice import Choice, PaperPreset
from simlab.papers.presets import PAPERS

_INTRODUCTION = """\
# The papers to the letter

`--paper phang2021`, `--paper wu2020` and `--paper ren2023` on a command set its options as that
paper does. An option on the command line counts more than the paper's choice. `simcore papers NAME`
prints a paper's table. From Python, `paper_options` gives the choices as keywords:

```python
from simlab import grid, paper_options

chosen = paper_options("wu2020", "grid", measure="svcca")
grid("runs/words", "runs/svcca.parquet", measure="svcca", **chosen)
```

On `finetune` and `freeze-study`, `--paper NAME` is the same as `--recipe NAME`. A sweep file has
`paper = "NAME"`. `skip`, `localize` and `report` have no `--paper`, because the papers leave
nothing to choose there; `pretrain`, `import` and `influence` have none, because the papers have no
such step.

Each table says what the text of the paper states, what the code of its authors does, what we take,
and why. Where text and code disagree, we follow the text, unless a row gives a reason for the code.

`python -m simlab.papers.page > docs/results/papers.md` makes this page from the tables in
`python/simlab/papers`.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION, *(part for p in PAPERS.values() for part in _paper(p))])


def setting(choice: Choice) -> str:
    """Return the option and its value as they are typed on the command line."""
    value = choice.value
    name = option_name(choice.option, isinstance(value, list))
    if value is True:
        return name
    if value is False:
        return f"--no-{name.removeprefix('--')}"
    several = value if isinstance(value, list) else [value]
    return " ".join(f"{name} {_text(one)}" for one in several)


def conditions(choice: Choice) -> str:
    """Return the conditions of a choice in a few words."""
    return ", ".join(f"{name} {' or '.join(wanted)}" for name, wanted in choice.when.items())


def _text(value: object) -> str:
    return f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)


def _paper(paper: PaperPreset) -> list[str]:
    lines = [f"## {paper.name}", "", f"{paper.title}.", "", f"Code: {paper.published}.", ""]
    names = ("we take", "the text", "the authors' code", "why")
    for command in dict.fromkeys(choice.command for choice in paper.choices):
        own = [choice for choice in paper.choices if choice.command == command]
        lines += [f"`simcore {command}`:", ""]
        lines += _table(names, [(_taken(c), c.text, c.code, c.why) for c in own])
    if paper.differences:
        lines += ["Differences that no option covers:", ""]
        rows = [(f"`{d.about}`", d.text, d.code, d.why) for d in paper.differences]
        lines += _table(("about", "the text", "the authors' code", "what we take, and why"), rows)
    return lines


def _taken(choice: Choice) -> str:
    where = conditions(choice)
    return f"`{setting(choice)}`" + (f" ({where})" if where else "")


def _table(names: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    every = [names, tuple("---" for _ in names), *rows]
    cells = [[cell.replace("|", r"\|") for cell in row] for row in every]
    return [*(f"| {' | '.join(row)} |" for row in cells), ""]


if __name__ == "__main__":
    print(page(), end="")
