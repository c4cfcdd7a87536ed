"""Pages of real and of made-up results, and the browser that shows them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simlab.report.write import write_report
from simlab.results.results import ResultRow, to_frame, write_results
from support.lab.browsers import NO_BROWSER, NO_TOOLS, Opened, find_browser, started, tool
from support.lab.pages import CURVES, JOINT
from support.lab.result_rows import grid, joint_grid


@pytest.fixture(scope="session")
def written(tmp_path_factory) -> Callable[..., Path]:
    """Return a function that writes rows and the page that shows them."""

    def write(rows: list[ResultRow], **options: Any) -> Path:
        folder = tmp_path_factory.mktemp("written")
        write_results(to_frame(rows), folder / "results.parquet")
        return write_report(folder / "results.parquet", folder / "page.html", **options)

    return write


@pytest.fixture(scope="session")
def studies(tmp_path_factory) -> Path:
    """The page of two committed studies: grids with intervals and blocks, scores, curves.

    One process of pytest-xdist writes it for all.
    """
    shared = "PYTEST_XDIST_WORKER" in os.environ
    folder = tmp_path_factory.getbasetemp()
    out = (folder.parent if shared else folder) / "studies.html"
    with out.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not out.exists():
            write_report([JOINT, CURVES], out, title="Two studies")
    return out


@pytest.fixture(scope="session")
def small(written) -> Path:
    """The page of two grids of one model."""
    return written(grid("A-B", "A", "B") + grid("A-C", "A", "C", seed=1))


@pytest.fixture(scope="session")
def large(written) -> Path:
    """The page of a joint grid of 12 x 5 layers, and of two models with other layers."""
    rows = joint_grid([f"M{number}" for number in range(12)], layers=5, measure="cka")
    return written(rows + grid("M1-M2", "M1", "M2", measure="svcca"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium for the tests of a module, which are skipped where there is none."""
    if not find_browser():
        pytest.skip(f"the page is not tested: {NO_BROWSER}")
    with started() as found:
        yield found


@pytest.fixture
def opened(browser) -> Iterator[Callable[..., Opened]]:
    """Return a function that opens a page; at the end, no page has asked for or complained of
    anything."""
    pages: list[Opened] = []

    def open_page(
        file: Path, width: int = 1280, dark: bool = False, copies: bool = True, **state: str
    ) -> Opened:
        options: dict[str, Any] = {"viewport": {"width": width, "height": 800}}
        options["color_scheme"] = "dark" if dark else "light"
        options["permissions"] = ["clipboard-read", "clipboard-write"] if copies else []
        pages.append(Opened(browser, file, **options))
        pages[-1].go(**state)
        return pages[-1]

    yield open_page
    seen = [(page.requests, page.complaints) for page in pages]
    for page in pages:
        page.close()
    assert all(found == ([], []) for found in seen), seen


VIOLATIONS = """(impacts) => axe.run({ resultTypes: ["violations"] }).then(({ violations }) =>
  violations.filter(({ impact }) => impacts.includes(impact))
    .map(({ id, nodes }) => [id, ...nodes.map(({ html }) => html.slice(0, 200))]))"""


@pytest.fixture
def violations() -> Callable[..., list[Any]]:
    """Return a function that lists the rules of accessibility that a page breaks, by axe."""
    axe = tool("axe-core/axe.min.js")
    if not axe:
        pytest.skip(NO_TOOLS)

    def find(view: Opened, *impacts: str) -> list[Any]:
        view.page.evaluate(axe.read_text())
        every = ("minor", "moderate", "serious", "critical")
        return view.page.evaluate(VIOLATIONS, list(impacts or every))

    return find
