"""The pages of the experiments: one for each command, all of one form, all in the index."""

import re

import pytest
from typer.main import get_command

from simlab.cli import make_app
from support.pages import ROOT

FOLDER = ROOT / "docs" / "experiments"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "index")
ELSEWHERE = {"demo", "doctor"}  # what the pages begin with, and pages of guides
LISTS = {"models-and-tasks"}  # prints tables: nothing came out, and no option matters


def text_of(page):
    return (FOLDER / f"{page}.md").read_text()


def title_of(page):
    return text_of(page).partition("\n")[0]


def test_every_command_has_a_page():
    titled = {
        name for page in PAGES for name in re.findall(r"`(?:simcore )?(\S+)`", title_of(page))
    }
    assert titled == set(get_command(make_app()).commands) - ELSEWHERE


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_form_of_the_others(page):
    text = text_of(page)
    rows = re.findall(r"^\| ([\w' ]+) \|", text.partition("\n## ")[0], re.M)
    assert {"question", "reads", "writes"} <= set(rows)
    assert re.search(r"^simcore ", text, re.M)
    headings = re.findall(r"^## (.*)$", text, re.M)
    assert headings[-1] == "Pitfalls"
    if page not in LISTS:
        assert headings[0] == "Run it"
        assert "Options that matter" in headings
        assert "[All options](../reference/command-line.md)" in text


@pytest.mark.parametrize("page", PAGES)
def test_the_index_names_a_page(page):
    index = text_of("index")
    assert f"({page}.md)" in index
    assert re.search(rf"^{page}$", index, re.M)  # in the list of the site
