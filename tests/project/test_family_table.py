"""The documentation's table of families holds every family, and explains every exception."""

import importlib
import sys

from support.documentation import DOCS
from support.model_families import ENCODER_DECODERS, PICTURES, SOUNDS, STEPS, TEXT

sys.path.append(str(DOCS / "_ext"))
table = importlib.import_module("family_table")
PAGE = DOCS / "experiments" / "models-and-tasks.md"


def test_the_page_has_a_row_for_every_family():
    source = [PAGE.read_text()]
    table.fill(None, "", source)
    text = source[0]
    assert table.MARKER not in text
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in lines}
    for family in TEXT:
        cells = rows[family.name].strip(" |").split(" | ")[1:]
        assert len(cells) == len(STEPS)
        for step, cell in zip(STEPS, cells, strict=True):
            assert (cell == "yes") == (step not in family.without)
            number, reason = cell.strip("no ()"), family.without.get(step, "")
            assert cell == "yes" or f"\n{number}. {reason[:1].upper()}{reason[1:]}.\n" in text
    for family in (*ENCODER_DECODERS, *PICTURES, *SOUNDS):
        assert family.name in text


def test_every_statement_is_about_a_step():
    assert all(set(family.without) <= set(STEPS) for family in TEXT)
