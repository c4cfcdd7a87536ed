"""README: its length, its tables, its links and pictures; and the links of all other pages."""

import re

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


def broken_links(page):
    """Yield the links of a page that lead to no file, or to no heading of a page."""
    for link in _LINK.finditer(prose(page)):
        target = (page.parent / link["target"]).resolve() if link["target"] else page
        is_page = target.suffix == ".md"
        if not target.exists() or (
            is_page and link["anchor"] and link["anchor"] not in anchors(target.read_text())
        ):
            yield link[0]


def test_links_lead_somewhere():
    assert not {page: links for page in pages() if (links := list(broken_links(page)))}


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](#one) [b](#two) [c](page.md#one) [d](other.md) [e](page.md#two)\n")
    assert list(broken_links(page)) == ["[b](#two)", "[d](other.md)", "[e](page.md#two)"]


def test_pictures_have_an_alternative_text():
    pictures = [(page, picture) for page in pages() for picture in _PICTURE.finditer(prose(page))]
    assert pictures
    assert not [
        (page, picture[0])
        for page, picture in pictures
        if not picture["alt"] and not re.search(r'alt="([^"]+)"', picture[0])
    ]


def test_it_says_about_how_many_measures_there_are():
    from simlab.similarity.catalogue import MEASURES

    (count,) = re.findall(r"^\| measures \| (\d+)\+ \|", README.read_text(), re.M)
    assert int(count) < len(MEASURES) <= int(count) + 10
