"""README: its length, its tables, its links and pictures; and the links of all other pages."""

import re

import pytest

from bench.speed_table import speed_table
from support.pages import ROOT, pages

README = ROOT / "README.md"
MOST_WORDS = 900
_LINK = re.compile(
    r"(?<!!)\[[^\]]*\]\((?!https?:|mailto:)(?P<target>[^)#\s]*)#?(?P<anchor>[^)\s]*)\)"
)
_PICTURE = re.compile(r"<img [^>]*>|!\[(?P<alt>[^\]]*)\]\([^)]*\)")


def anchors(text):
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def prose(page):
    """Return the text of a page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def test_it_is_short():
    assert len(README.read_text().split()) < MOST_WORDS


def test_it_has_the_table_of_speed():
    assert speed_table() in README.read_text(), "python -m bench.speed_table"


def test_the_site_begins_with_it():
    """The first page includes README down to a heading: its picture, its code, how to install."""
    index = (ROOT / "docs" / "index.md").read_text()
    include = re.search(r"{include} (\S+)\n(?::.*\n)*?:end-before: \"(.+)\"", index)
    included, end = include.groups()
    assert (ROOT / "docs" / included).resolve() == README
    beginning, heading, _ = README.read_text().partition(f"{end}\n")
    assert heading
    for shown in ("![", "```python", "from simcore import cka_grid", "pip install"):
        assert shown in beginning


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = prose(page)
    for link in _LINK.finditer(text):
        target = (page.parent / link["target"]).resolve() if link["target"] else page
        assert target.exists(), link[0]
        if link["anchor"] and target.suffix == ".md":
            assert link["anchor"] in anchors(target.read_text()), link[0]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pictures_have_an_alternative_text(page):
    for picture in _PICTURE.finditer(prose(page)):
        alternative = picture["alt"] or re.search(r'alt="([^"]+)"', picture[0])
        assert alternative, picture[0]


def test_it_says_about_how_many_measures_there_are():
    from simlab.similarity.catalogue import MEASURES

    (count,) = re.findall(r"^\| measures \| (\d+)\+ \|", README.read_text(), re.M)
    assert int(count) < len(MEASURES) <= int(count) + 10
