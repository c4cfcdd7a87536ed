"""The pictures of the report's page in docs/figures, of the committed study of five seeds.

python -m tools.page_pictures
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from urllib.parse import urlencode

from bench.report import browser
from simlab.report.write import write_report

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "examples" / "studies" / "results" / "phang2021-offline.parquet"
FIGURES = ROOT / "docs" / "figures"
JOINT = "rt~cls~linear CKA (biased)~ORIG + FT: all of 6 models~1000"
PAIR = "rt~cls~linear CKA (biased)~minilm-FT[1–5] × minilm-ORIG, 5 seeds~1000"
OTHER = "stsb~cls~linear CKA (biased)~minilm-FT[1–5] × minilm-ORIG, 5 seeds~1500"
LAYER = {"a": JOINT, "layer": "a~minilm-FT[1]~5"}
CELL = "minilm-FT[1–5], layer 4~minilm-ORIG, layer 4"

# The width and height of the window, whether it is dark, and what the address says.
PICTURES = {
    "report-overview": (1280, 900, False, {"view": "overview"}),
    "report-layer": (1280, 1080, False, LAYER),
    "report-dark": (1280, 1080, True, LAYER),
    "report-narrow": (360, 1000, False, {"a": PAIR, "cell": CELL}),
    "report": (1280, 1560, False, {"a": PAIR, "b": OTHER, "cell": CELL}),
}


def main() -> None:
    """Take all pictures."""
    with tempfile.TemporaryDirectory() as folder, browser() as found:
        page = write_report(RESULTS, Path(folder) / "page.html", title="MiniLM, five seeds")
        for name, (width, height, dark, state) in PICTURES.items():
            tab = found.new_page(
                viewport={"width": width, "height": height},
                color_scheme="dark" if dark else "light",
            )
            tab.goto(f"{page.as_uri()}#{urlencode({'view': 'grids', **state})}")
            tab.wait_for_selector("body[data-ready]")
            tab.wait_for_timeout(500)
            tab.screenshot(path=FIGURES / f"{name}.png")
            tab.close()


if __name__ == "__main__":
    main()
