"""The documentation site: its links lead somewhere, and everybody can read its pages.

`SIMCORE_SITE` may name a site that is built already; otherwise one is built here, whose gallery and
notebooks are not run.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import simcore
from simcore._measures import MEASURES
from support.documentation import DOCS, ROOT
from support.lab.browsers import NO_BROWSER, find_browser, started
from support.lab.sites import Site, served

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
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", str(built / "pages"), str(DOCS), str(built / "site")],
        cwd=ROOT,
        env={**os.environ, "SIMCORE_DOCS": "unrun"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return built / "site"


@pytest.fixture(scope="module")
def site(folder):
    """The parsed pages."""
    return Site(folder)


def test_links_lead_somewhere(site):
    assert len(site.pages) > 20
    assert site.broken_links() == []
    assert site.malformed_addresses() == []


@pytest.mark.parametrize("name", MEASURES, ids=lambda name: MEASURES[name].function)
def test_the_page_of_a_measure_links_to_its_source(site, name):
    function = MEASURES[name].function
    page = f"measures/{MEASURES[name].page}.html"
    module = getattr(simcore, function).__module__.replace(".", "/")
    links = [tag["href"] for tag in site.pages[page].find_all("a", href=True)]
    assert f"../_modules/{module}.html#{function}" in links


def test_the_reference_links_to_sources(site):
    pages = [name for name in site.pages if name.startswith("reference/api/generated/simcore.")]
    assert len(pages) > 20
    without = [name for name in pages if not site.pages[name].find(class_="viewcode-link")]
    assert without == []


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
    if not find_browser():
        pytest.skip(f"the documentation site is not tested in a browser: {NO_BROWSER}")
    asked, said, wide, hidden = [], [], {}, {}
    with served(folder) as address, started() as browser:
        view = browser.new_page(viewport={"width": WIDTH, "height": 700})
        view.on("request", lambda request: asked.append(request.url))
        view.on("pageerror", lambda error: said.append(str(error)))
        view.on("console", lambda m: said.append(m.text) if m.type == "error" else None)
        for page in site.pages:
            view.goto(f"{address}/{page}")
            if view.evaluate("document.documentElement.scrollWidth") > WIDTH:
                wide[page] = view.evaluate(WIDER)
            if tables := view.evaluate(HIDDEN):
                hidden[page] = tables
    assert wide == {}
    assert hidden == {}
    assert said == []
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
