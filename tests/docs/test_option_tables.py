"""Tables of options and of keys stand in the pages as the records have them."""

import importlib
import re
import sys

import pytest

from simlab.steps.catalogue import GRID
from simlab.sweeps.spec import Spec
from support.documentation import DOCS

sys.path.append(str(DOCS / "_ext"))
tables = importlib.import_module("option_tables")
PAGES = sorted(path.name for path in (DOCS / "experiments").glob("*.md"))


def filled(path):
    source = [path.read_text()]
    tables.fill(None, "", source)
    return source[0]


@pytest.mark.parametrize("name", PAGES)
def test_options_are_not_typed(name):
    text = (DOCS / "experiments" / name).read_text()
    assert "| option |" not in text
    if "## Options that matter" in text:
        table = filled(DOCS / "experiments" / name).partition("## Options that matter\n\n")[2]
        rows = table.partition("\n\n")[0].splitlines()[2:]
        assert rows
        assert all(re.fullmatch(r"\| `--.*` \| [^ ].* \|", row) for row in rows)


def test_a_row_has_the_help_and_the_default():
    text = next(one.text for one in GRID.parameters if one.name == "joint")
    assert tables.options_of("grid", ["joint"]).endswith(f"| `--joint` | {text} |")
    assert " Default: `0`. |" in tables.options_of("grid", ["bootstrap"])
    row = tables.options_of("extract", ["special-tokens"]).splitlines()[-1]
    assert row.startswith("| `--special-tokens`, `--no-special-tokens` |")
    assert row.endswith("Default: `--special-tokens`. |")


@pytest.mark.parametrize(("command", "option"), [("grid", "jiont"), ("gird", "joint")])
def test_an_unknown_name_ends_the_build(command, option):
    with pytest.raises(LookupError, match=r"wanted .* found (jiont|gird)"):
        tables.options_of(command, [option])


def test_every_section_of_a_sweep_file_is_in_its_guide():
    text = filled(DOCS / "guides" / "sweeps.md")
    rows = re.findall(r"^\| `(\[*)(\w+)\]*` \| \S.* \|$", text, re.MULTILINE)
    assert [name for _, name in rows] == list(Spec.model_fields)
    assert ("[[", "grids") in rows
    assert ("[", "truncate") in rows
    assert ("", "keep") in rows
    (row,) = (line for line in text.splitlines() if line.startswith("| `[localize]`"))
    assert row.endswith("| `standardize` |")
