"""Pages of real and of made-up results, and the browser that shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simlab.report.write import write_report
from simlab.results.results import ResultRow, to_frame, write_results
from support.lab.browsers import NO_BROWSER, Opened, find_browser, started
from support.lab.pages import CURVES, JOINT
from support.lab.result_rows import grid, joint_grid


@pytest.fixture
def written(tmp_path) -> Callable[..., Path]:
    """Return a function that writes rows and the page that shows them."""

    def write(rows: list[ResultRow], **options: Any) -> Path:
        write_results(to_frame(rows), tmp_path / "results.parquet")
        return write_report(tmp_path / "results.parquet", tmp_path / "page.html", **options)

    return write


@pytest.fixture(scope="session")
def studies(tmp_path_factory) -> Path:
    """The page of two committed studies: grids with intervals and blocks, scores, curves."""
    out = tmp_path_factory.mktemp("pages") / "studies.html"
    return write_report([JOINT, CURVES], out, title="Two studies")


@pytest.fixture(scope="session")
def large(tmp_path_factory) -> Path:
    """The page of a joint grid of 12 x 5 layers, and of two models with other layers."""
    folder = tmp_path_factory.mktemp("pages")
    models = [f"M{number}" for number in range(12)]
    rows = joint_grid(models, layers=5, measure="cka")
    rows += grid("M1-M2", "M1", "M2", measure="svcca")
    write_results(to_frame(rows), folder / "large.parquet")
    return write_report(folder / "large.parquet", folder / "large.html")


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
