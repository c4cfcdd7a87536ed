"""The table of measures and distributions in `docs/measures/contract.md`, made from a run.

``python -m numerics.table`` (with ``tests`` on the path) computes all values of float32 layers and
writes the table into the page; it takes some minutes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from math import isnan
from pathlib import Path

from numerics.cases import BY_NAME, CASES
from numerics.contract import Verdict, verdicts
from numerics.distributions import DISTRIBUTIONS
from numerics.test_values import chosen

PAGE = Path(__file__).resolve().parents[2] / "docs/measures/contract.md"
BEGIN, END = "<!-- numerics: tests/numerics/table.py -->", "<!-- end of numerics -->"
RIGHT = "."
GROUPS = list(dict.fromkeys(one.group for one in DISTRIBUTIONS.values()))


def cell(found: Iterable[Verdict]) -> str:
    """Return the worst that happened: an error, a warning, a computation in float64, or nothing."""
    found = list(found)
    errors = [
        v.error / abs(v.right) if BY_NAME[v.case].unbounded and v.right else v.error
        for v in found
        if not v.kept
    ]
    if errors:
        return f"{max(errors):.0e}"
    if any(v.warned and not isnan(v.right) for v in found):
        return "warned"
    return "recomputed" if any(v.again for v in found) else RIGHT


def table(found: Iterable[Verdict]) -> str:
    """Return the table as Markdown; measures that are right everywhere stand in a sentence."""
    cells: dict[str, dict[str, list[Verdict]]] = {str(case): defaultdict(list) for case in CASES}
    for verdict in found:
        group = DISTRIBUTIONS[verdict.place.split()[0]].group
        cells[verdict.case][group].append(verdict)
    rows = {case: [cell(of[group]) for group in GROUPS] for case, of in cells.items()}
    quiet = [case for case, row in rows.items() if {*row} == {RIGHT}]
    lines = [f"| measure | {' | '.join(GROUPS)} |", "|---" * (len(GROUPS) + 1) + "|"]
    lines += [f"| `{case}` | {' | '.join(rows[case])} |" for case in rows if case not in quiet]
    without = ", ".join(f"`{case}`" for case in quiet)
    return "\n".join([*lines, "", f"Right everywhere, without either: {without}."])


def named(page: str) -> tuple[list[str], list[str]]:
    """Return the groups and the measures that a page's table names."""
    text = page.partition(BEGIN)[2].partition(END)[0]
    header = text.strip().partition("\n")[0]
    return header.strip("| ").split(" | ")[1:], sorted(re.findall("`([^`]+)`", text))


def write(page: Path = PAGE) -> None:
    """Compute all values and put the table between its marks, or at the end of the page."""
    found = [v for name in DISTRIBUTIONS for v in verdicts(name, chosen(name, "float32"))]
    before, mark, after = page.read_text().partition(BEGIN)
    rest = after.partition(END)[2] if mark else "\n"
    head = before if mark else before + "\n"
    page.write_text(f"{head}{BEGIN}\n\n{table(found)}\n\n{END}{rest}")


if __name__ == "__main__":
    write()
