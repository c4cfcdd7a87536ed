"""The page of results: its size, times to write, open and use it, memory, and frames.

The results are simulated: joint grids of models of 13 layers each, whose similarity falls with the
distance of layers and models, with noise; intervals and p-values are as wide and as coarse as those
of 200 draws. Times to write include reading the results; imports and figures are not part of them.

    python -m bench.report
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.harness import MB
from bench.rows import measure_rows

LAYERS = 13
DRAWS = 200
MEASURES = (
    *("cka", "cca", "svcca", "pwcca", "linreg", "procrustes", "rsa", "neuronsim", "mixedsim"),
)
VIEWPORT = {"width": 1280, "height": 900}
FRAMES, MOVES = 120, 40
TARGET_MS = 1000 / 60
BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

# When the first grid is drawn: in milliseconds since the browser began to open the page.
WATCH = """new MutationObserver((_, observer) => {
  if (!document.body?.dataset.ready) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.drawn = performance.now(); }));
}).observe(document, { subtree: true, childList: true, attributes: true })"""
READY = "window.drawn > 0"
OPEN_LAYER = """async (canvas) => {
  const start = performance.now();
  canvas.focus();
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
  do await new Promise(requestAnimationFrame); while (!document.body.dataset.ready);
  return performance.now() - start;
}"""
# Zoom in, hold the grid and move it in circles, a step in each frame.
PAN = """async (canvas, frames) => {
  for (let i = 0; i < 4; i++) {
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "+" }));
  }
  const box = canvas.getBoundingClientRect(), times = [];
  const send = (type, at) => canvas.dispatchEvent(new PointerEvent(type, { pointerId: 1,
    bubbles: true, clientX: box.left + box.width / 2 + 150 * Math.sin(at / 8),
    clientY: box.top + box.height / 2 + 150 * Math.cos(at / 8) }));
  send("pointerdown", 0);
  for (let i = 0; i < frames; i++) {
    send("pointermove", i);
    times.push(await new Promise(requestAnimationFrame));
  }
  send("pointerup", frames);
  return times.slice(1).map((time, i) => time - times[i]);
}"""

# The work of a move of the mouse: its handlers, and the frame that they ask for.
HOVER = """async (canvas, [moves, down]) => {
  const box = canvas.getBoundingClientRect(), wait = window.requestAnimationFrame, times = [];
  for (let move = 0; move < moves; move++) {
    const asked = [];
    window.requestAnimationFrame = (act) => asked.push(act);
    const along = box.width * 0.3 + move * 3, start = performance.now();
    const [x, y] = down ? [box.width / 2, along] : [along, box.height / 2];
    canvas.dispatchEvent(new PointerEvent("pointermove",
      { pointerType: "mouse", clientX: box.left + x, clientY: box.top + y }));
    for (const act of asked) act(performance.now());
    times.push(performance.now() - start);
    window.requestAnimationFrame = wait;
    await new Promise(wait);
  }
  return [times, canvas.closest("section").querySelector(".readout").textContent];
}"""


@dataclass(frozen=True)
class Job:
    """Joint grids of `measures` over `models` models, and `pairs` grids of two models.

    With ``whole=False`` cells have values alone, without intervals and p-values.
    """

    models: int
    measures: int
    whole: bool = True
    pairs: int = 0

    def frame(self) -> Any:
        """Return the results table."""
        import pandas as pd

        parts = [joint(self.models, measure, self.whole) for measure in MEASURES[: self.measures]]
        parts += [pair(number) for number in range(self.pairs)]
        return pd.concat(parts, ignore_index=True)


JOBS = {
    "325 x 325 x 9": Job(models=25, measures=9),
    "1,001 x 1,001": Job(models=77, measures=1),
    "1,200 grids of 13 x 13": Job(models=2, measures=1, whole=False, pairs=1199),
    "3,000 grids of 13 x 13": Job(models=2, measures=1, whole=False, pairs=3000),
}


@dataclass(frozen=True)
class Row:
    """What was measured of one page: medians of `repeats`; None without a browser.

    `open_s` ends when the first grid is drawn, and `overview_s` when the overview is, with which a
    page begins; `profile_s` is the time from the key to the profile of a layer, `hover_ms` the work
    of a move of the mouse down a column; `browser_mb` is the proportional set size of all processes
    of the browser, and `empty_mb` the same before the page was opened. `frames_late` is the share
    of frames that took more than 1.5 times 1/60 s.
    """

    job: str
    cells: int
    page_mb: float
    write_s: float
    write_cpu_s: float
    overview_s: float | None
    open_s: float | None
    profile_s: float | None
    hover_ms: float | None
    browser_mb: float | None
    empty_mb: float | None
    frame_ms: float | None
    frames_late: float | None
    repeats: int


def joint(models: int, measure: str, whole: bool) -> Any:
    """Return the rows of a simulated joint grid."""
    draw = np.random.default_rng(MEASURES.index(measure))
    count = models * LAYERS
    model, layer = np.divmod(np.arange(count), LAYERS)
    far = np.abs(layer[:, None] - layer) / LAYERS
    value = np.exp(-far) * np.where(model[:, None] == model, 1.0, 0.6)
    value = np.clip(value + _symmetric(draw.normal(0, 0.03, (count, count))), 0, 1)
    np.fill_diagonal(value, 1.0)
    low = high = pvalue = np.full((count, count), np.nan)
    if whole:
        width = _symmetric(draw.uniform(0.01, 0.05, (count, count)))
        np.fill_diagonal(width, 1e-8)  # rounding
        low, high = value - width, np.minimum(value + width, 1.0)
        pvalue = np.maximum.accumulate(draw.integers(1, DRAWS, (count, count)) / (DRAWS + 1))
        pvalue = _symmetric(pvalue)
    x, y = np.divmod(np.arange(count**2), count)
    columns = {"value": value, "low": low, "high": high, "pvalue": pvalue}
    return _rows("joint grid", "all", measure, (model[x], layer[x]), (model[y], layer[y])).assign(
        **{name: table.ravel() for name, table in columns.items()}
    )


def pair(number: int) -> Any:
    """Return the rows of a grid of two models, values alone."""
    draw = np.random.default_rng(number)
    layer, other = np.divmod(np.arange(LAYERS**2), LAYERS)
    model = np.full(LAYERS**2, 100 + number)
    rows = _rows("grid", f"pair {number}", "cka", (model, layer), (model + 1, other))
    return rows.assign(value=draw.uniform(0, 1, LAYERS**2))


def _symmetric(table: np.ndarray) -> np.ndarray:
    return (table + table.T) / 2


def _rows(
    experiment: str, comparison: str, measure: str, x: tuple[Any, Any], y: tuple[Any, Any]
) -> Any:
    import pandas as pd

    from simlab.results.results import COLUMNS

    sides = {
        f"{what}_{side}": column
        for side, (model, layer) in (("x", x), ("y", y))
        for what, column in (("label", model), ("seed", model), ("layer", layer))
    }
    frame = pd.DataFrame(
        {**sides, "experiment": experiment, "comparison": comparison, "measure": measure}
    )
    for side in ("label_x", "label_y"):
        frame[side] = "FT[" + frame[side].astype(str) + "]"
    frame = frame.assign(kind="cls", n=1000, task="rt", kernel="linear", estimator="biased")
    return frame.reindex(columns=list(COLUMNS))


def written(job: Job, folder: Path, repeats: int) -> tuple[Path, list[tuple[float, float]]]:
    """Return the page, and wall and processor times of writing it."""
    import matplotlib.figure  # noqa: F401  (imported before the clock runs)
    import scipy.cluster.hierarchy  # noqa: F401

    from simlab.report.write import write_report
    from simlab.results.results import PANDAS_TYPES, write_results

    file, page = folder / "results.parquet", folder / "page.html"
    write_results(job.frame().astype(PANDAS_TYPES), file)
    times = []
    for _ in range(repeats + 1):
        wall, processor = time.perf_counter(), time.process_time()
        write_report(file, page)
        times.append((time.perf_counter() - wall, time.process_time() - processor))
    return page, times[1:]


@contextmanager
def browser() -> Iterator[Any]:
    """Start a headless browser; None where there is none."""
    import shutil

    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


def shown(page: Path) -> dict[str, float]:
    """Open a page in fresh browsers, at both views; move over a grid, open a layer, and pan."""
    with browser() as found:
        if found is None:
            return {}
        tab = found.new_page(viewport=VIEWPORT)
        overview_s = seconds_until_drawn(tab, page, "overview")
    with browser() as found:
        tab = found.new_page(viewport=VIEWPORT)
        before = browser_bytes()
        seen = {"open_s": seconds_until_drawn(tab, page, "grids"), "overview_s": overview_s}
        canvas = tab.locator("canvas[tabindex]").first
        seen["empty_mb"] = before / MB
        seen["hover_ms"] = statistics.median(canvas.evaluate(HOVER, [MOVES, True])[0])
        seen["profile_s"] = canvas.evaluate(OPEN_LAYER) / 1e3
        frames = canvas.evaluate(PAN, FRAMES)
        seen["frame_ms"] = statistics.median(frames)
        seen["frames_late"] = sum(frame > 1.5 * TARGET_MS for frame in frames) / len(frames)
        seen["browser_mb"] = browser_bytes() / MB
        return seen


def seconds_until_drawn(tab: Any, page: Path, view: str) -> float:
    """Open a view of the page, and return how long the browser took until it was drawn."""
    tab.add_init_script(WATCH)
    tab.goto(f"{page.as_uri()}#view={view}")
    while not tab.evaluate(READY):
        time.sleep(0.02)
    drawn: float = tab.evaluate("window.drawn")
    return drawn / 1e3


def browser_bytes() -> int:
    """Return the proportional set size of the browser that this process has started."""
    import psutil

    processes = psutil.Process(os.getpid()).children(recursive=True)
    return sum(p.memory_full_info().pss for p in processes if "chrom" in p.name())


def run(label: str, job: Job, repeats: int) -> Row:
    """Return the row of one job."""
    with tempfile.TemporaryDirectory() as place:
        page, times = written(job, Path(place), repeats)
        seen = [shown(page) for _ in range(repeats)]
        size = page.stat().st_size / MB
    median: Callable[[str], float | None] = lambda name: (  # noqa: E731
        statistics.median(found[name] for found in seen) if seen[0] else None
    )
    return Row(
        job=label,
        cells=(job.models * LAYERS) ** 2 * job.measures + job.pairs * LAYERS**2,
        page_mb=size,
        write_s=statistics.median(wall for wall, _ in times),
        write_cpu_s=statistics.median(processor for _, processor in times),
        **{
            name: median(name)
            for name in (
                *("overview_s", "open_s", "profile_s", "hover_ms"),
                *("browser_mb", "empty_mb", "frame_ms", "frames_late"),
            )
        },
        repeats=repeats,
    )


if __name__ == "__main__":
    measure_rows("report", JOBS, run, __doc__)
