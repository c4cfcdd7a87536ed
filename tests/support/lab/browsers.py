"""A headless browser for tests of the page, and what it saw of a page."""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

# The shell draws the same pages in half the time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable")
NO_BROWSER = "no chromium-headless-shell and no chromium on this machine"
TOOLS = Path(__file__).resolve().parents[3] / "tools" / "page" / "node_modules"
NO_TOOLS = "npm has not installed tools/page"


def find_browser() -> str | None:
    """Return the path of a Chromium; the variable CHROMIUM may name one."""
    named = [os.environ["CHROMIUM"]] if "CHROMIUM" in os.environ else NAMES
    return next((path for name in named if (path := shutil.which(name))), None)


def tool(name: str) -> Path | None:
    """Return the path of a file that npm installed, such as ``axe-core/axe.min.js``."""
    path = TOOLS / name
    return path if path.exists() else None


@contextmanager
def started() -> Iterator[Any]:
    """Start the browser; the caller knows that there is one."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=["--no-sandbox", "--enable-precise-memory-info"]
        )
        yield browser
        browser.close()


class Opened:
    """A page that a browser shows, with all that it asked for and complained of.

    Attributes
    ----------
    page
        Playwright's page.
    requests
        Addresses that the page asked for beyond itself.
    failures
        Why requests failed, by their addresses.
    complaints
        Messages of the console that are warnings or errors, and errors that nobody caught.
    """

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.file = file
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(10_000)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.failures: dict[str, str] = {}
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("requestfailed", lambda r: self.failures.update({r.url: r.failure}))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._said)

    def _asked(self, address: str) -> None:
        if address.split("#")[0] != self.file.as_uri() and not address.startswith("blob:null/"):
            self.requests.append(address)

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def go(self, **state: str) -> None:
        """Show the page at the address of a state, and wait until it is drawn.

        Grids unless the state names a view; an empty name is the first view.
        """
        state = {"view": "grids", **state}
        fragment = "&".join(f"{name}={quote(value)}" for name, value in state.items())
        self._load(f"{self.file.as_uri()}#{fragment}")

    def again(self) -> None:
        """Open the address that the page has now as a link."""
        self._load(self.page.url)

    def _load(self, address: str) -> None:
        """Load a page anew: another fragment of an address alone would not."""
        if self.page.url != "about:blank":
            self.page.goto("about:blank")
        self.page.goto(address)
        self.settle()

    def settle(self) -> None:
        """Wait until the page has drawn what its address says."""
        self.page.wait_for_selector("body[data-ready]")
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
        )

    def panel(self, name: str = "Grid A") -> Any:
        return self.page.get_by_role("region", name=name, exact=True)

    def choice(self, label: str, panel: str = "Grid A") -> Any:
        """Return a drop-down of a panel."""
        return self.panel(panel).get_by_role("combobox", name=label, exact=True)

    def field(self, label: str) -> Any:
        """Return a drop-down that is for all panels."""
        return self.page.get_by_role("combobox", name=label, exact=True)

    def choose(self, choice: Any, option: str) -> None:
        """Choose an option of a drop-down; the label alone is one of panel A."""
        (self.choice(choice) if isinstance(choice, str) else choice).select_option(option)
        self.settle()

    def compare(self) -> None:
        """Show a second grid."""
        self.page.get_by_label("Compare with a second grid").check()
        self.settle()

    def find(self, words: str) -> None:
        """Fill the filter of all views."""
        self.page.get_by_role("searchbox", name="Filter of all views").fill(words)
        self.settle()

    def grids(self) -> list[str]:
        """Return the names of the grids that panel A can show."""
        return self.choice("Grid").locator("option").all_inner_texts()

    def heading(self, panel: str = "Grid A") -> str:
        """Return what a panel says that it shows."""
        return self.panel(panel).locator("h2").first.inner_text()

    def scale(self, panel: str = "Grid A") -> str:
        """Return the words of the legend of a panel."""
        return self.panel(panel).locator(".scale").inner_text()

    def layer(self, name: str) -> Any:
        """Return the panel of a layer."""
        return self.page.get_by_role("region", name=f"Layer {name}", exact=True)

    def copied(self, place: Any = "Grid A", button: str = "Copy as CSV") -> list[dict[str, str]]:
        """Return the rows that a button of a panel, or of another part of the page, copies."""
        part = self.panel(place) if isinstance(place, str) else place
        part.get_by_role("button", name=button).first.click()
        self.said("Copied.")
        text = self.page.evaluate("navigator.clipboard.readText()")
        return list(csv.DictReader(io.StringIO(text)))

    def saved(self, button: str, place: Any = "Grid A") -> tuple[str, bytes]:
        """Return the name and the content of the file that a button saves."""
        part = self.panel(place) if isinstance(place, str) else place
        with self.page.expect_download() as started:
            part.get_by_role("button", name=button).first.click()
        return started.value.suggested_filename, Path(started.value.path()).read_bytes()

    def width(self) -> int:
        """Return how wide the page is, with what the window does not show."""
        return self.page.evaluate("document.documentElement.scrollWidth")

    def canvas(self, panel: str = "Grid A") -> Any:
        """Return the canvas of a panel."""
        return self.panel(panel).locator("canvas[tabindex]")

    def readout(self, panel: str = "Grid A") -> str:
        """Return what the live region of a panel says."""
        return self.panel(panel).locator(".readout").inner_text()

    def said(self, text: str) -> None:
        """Wait until the page says for a moment what was done."""
        self.page.locator(".said", has_text=text).wait_for()

    def hover(self, x: float, y: float, panel: str = "Grid A") -> None:
        """Move the mouse to a point of a canvas."""
        self.canvas(panel).scroll_into_view_if_needed()
        box = self.canvas(panel).bounding_box()
        self.page.mouse.move(box["x"] + x, box["y"] + y)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
        self.settle()

    def edges(self, panel: str = "Grid A") -> tuple[list[float], list[float]]:
        """Return where the columns and the rows of a grid begin, found by pointing at them.

        In pixels of the canvas. Rows count from the lowest one, and begin at their upper edges. The
        last number is where the last column and the lowest row end.
        """
        script = """(canvas) => {
          const box = canvas.getBoundingClientRect();
          const readout = canvas.closest("section").querySelector(".readout");
          const at = (x, y) => {
            readout.textContent = "";
            canvas.dispatchEvent(new PointerEvent("pointermove",
              { clientX: box.left + x, clientY: box.top + y }));
            return readout.textContent;
          };
          // Cells stand in order: where two places say the same, all places between them do.
          const along = (room, point) => {
            const found = [];
            const between = (low, first, high, last) => {
              if (first === last) return;
              if (high - low === 1) return void found.push(high);
              const middle = Math.floor((low + high) / 2), words = point(middle);
              between(low, first, middle, words);
              between(middle, words, high, last);
            };
            for (let low = -1, words = "", end = Math.ceil(room) - 1; low < end; ) {
              const high = Math.min(low + 8, end), next = point(high);
              between(low, words, high, next);
              [low, words] = [high, next];
            }
            return found;
          };
          const columns = along(box.width + 8, (x) => at(x, 60));
          return [columns, along(box.height + 8, (y) => at(columns[0] + 1, y))];
        }"""
        columns, rows = self.canvas(panel).evaluate(script)
        *upper, end = rows
        return columns, [*reversed(upper), end]

    def colours(self, panel: str, places: Mapping[Any, tuple[float, float]]) -> dict[Any, Any]:
        """Return red, green and blue of points of a canvas, in pixels of the page."""
        script = """(canvas, points) => {
          const ratio = canvas.width / canvas.clientWidth, { width, height } = canvas;
          const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
          return points.map(([x, y]) => {
            const at = (Math.floor(y * ratio) * width + Math.floor(x * ratio)) * 4;
            return [...data.slice(at, at + 3)];
          });
        }"""
        found = self.canvas(panel).evaluate(script, [list(point) for point in places.values()])
        return dict(zip(places, map(tuple, found), strict=True))

    def close(self) -> None:
        self.context.close()


if __name__ == "__main__":
    print(
        "page of the report:",
        "tested in a browser" if find_browser() else f"SKIPPED ({NO_BROWSER})",
    )
