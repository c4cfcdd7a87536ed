"""The documentation site: its links lead somewhere, and everybody can read its pages.

`SIMCORE_SITE` may name a site that is built already; otherwise one is built here, whose gallery and
notebooks are not run.
"""

import importlib.util
import os
from pathlib import Path

import pytest

import simcore
from simcore._measures import MEASURES
from support.documentation import DOCS, ROOT
from support.lab.browsers import NO_BROWSER, find_browser, started
from support.lab.sites import Site, served
from support.processes import python

pytestmark = pytest.mark.slow
WIDTH = 375
NEEDED = (
    *("sphinx", "myst_nb", "numpydoc", "pydata_sphinx_theme", "sphinx_design"),
    *("sphinx_copybutton", "sphinx_gallery"),
)
WIDER = f"""() => [...document.querySelectorAll("body *")]
  .filter((tag) => tag.getBoundingClientRect().right > {WIDTH} + 1)
  .slice(0, 5).map((tag) => tag.outerHTML.slice(0, 120))"""


# Tables that are wider than their box without a sign of it. The sign is a shadow behind the table,
# which an opaque cell would hide.
HIDDEN = """() => [...document.querySelectorAll(".pst-scrollable-table-container")]
  .filter((box) => box.scrollWidth > box.clientWidth)
  .filter((box) => !getComputedStyle(box).backgroundAttachment.includes("local")
    || [...box.querySelectorAll("table, tr, td, th")].some(
      (tag) => /^rgb\\(|^color\\([^/]*$/.test(getComputedStyle(tag).backgroundColor)))
  .map((box) => box.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the site."""
    if "SIMCORE_SITE" in os.environ:
        return Path(os.environ["SIMCORE_SITE"]).resolve()
    missing = [name for name in NEEDED if not importlib.util.find_spec(name)]
    if missing:
        pytest.skip(f"the documentation site is not tested: no {', '.join(missing)}")
    built = tmp_path_factory.mktemp("site")
    how = ("-W", "--keep-going", "-q", "-b", "html", "-d", built / "pages")
    python("-m", "sphinx", *how, DOCS, built / "site", cwd=ROOT, SIMCORE_DOCS="unrun")
    return built / "site"


@pytest.fixture(scope="module")
def site(folder):
    """The parsed pages."""
    return Site(folder)


def test_links_lead_somewhere(site):
    assert len(site.pages) > 20
    assert site.broken_links() == []
    assert site.malformed_addresses() == []


def test_measures_and_the_reference_link_to_their_sources(site):
    for measure in MEASURES.values():
        module = getattr(simcore, measure.function).__module__.replace(".", "/")
        address = f"../_modules/{module}.html#{measure.function}"
        assert address in site.pages[f"measures/{measure.page}.html"].links
    pages = [name for name in site.pages if name.startswith("reference/api/generated/simcore.")]
    assert len(pages) > 20
    assert [one for one in pages if "viewcode-link" not in site.pages[one].classes] == []


def test_pictures_have_a_text(site):
    assert site.pictures_without_text() == []


def test_what_is_broken_is_found(tmp_path):
    (tmp_path / "other.html").write_text('<p id="here">text</p>')
    (tmp_path / "index.html").write_text(
        '<a href="other.html#here">1</a> <a href="other.html#gone">2</a> <a href="gone.html">3</a>'
        '<a href="#gone">4</a> <a href="https://example.org/x">5</a> <a href="https://example">6</a>'
        '<img src="other.html"> <img src="other.html" alt="a picture">'
    )
    site = Site(tmp_path)
    links = ["other.html#gone", "gone.html", "#gone"]
    assert site.broken_links() == [f"index.html: {link}" for link in links]
    assert site.malformed_addresses() == ["index.html: https://example"]
    assert site.pictures_without_text() == ["index.html: other.html"]


def test_pages_hold_on_a_phone_and_ask_nobody_else(site, folder):
    """Scripts, which are the same everywhere, run on a page of each folder.

    Of the pages of sources, which have one form, the three with the longest names are shown.
    """
    if not find_browser():
        pytest.skip(f"the documentation site is not tested in a browser: {NO_BROWSER}")
    asked, said, wide, hidden = [], [], {}, {}
    sources = sorted((one for one in site.pages if one.startswith("_modules")), key=len)
    shown = [one for one in site.pages if one not in sources[:-3]]
    first = set({str(Path(page).parent): page for page in shown}.values())
    with served(folder) as address, started() as browser:
        window = {"width": WIDTH, "height": 700}
        views = {
            scripts: browser.new_page(viewport=window, java_script_enabled=scripts)
            for scripts in (True, False)
        }
        for view in views.values():
            view.on("request", lambda request: asked.append(request.url))
            view.on("pageerror", lambda error: said.append(str(error)))
            view.on("console", lambda m: said.append(m.text) if m.type == "error" else None)
        for page in shown:
            view = views[page in first]
            view.goto(f"{address}/{page}")
            view.evaluate("document.documentElement.dataset.theme = 'light'")  # as a script does
            if view.evaluate("document.documentElement.scrollWidth") > WIDTH:
                wide[page] = view.evaluate(WIDER)
            if tables := view.evaluate(HIDDEN):
                hidden[page] = tables
    assert len(asked) > len(shown) > len(first) > 3
    assert wide == {}
    assert hidden == {}
    assert said == []
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
