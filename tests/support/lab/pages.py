"""Results for tests of the page, and what a written page holds, read as a browser does."""

from __future__ import annotations

import base64
import json
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

STUDIES = Path(__file__).resolve().parents[3] / "examples" / "studies" / "results"
# Real results: joint grids of which one has intervals; curves, blocks and grids of two models.
JOINT, CURVES = STUDIES / "layers-rt.csv", STUDIES / "functional-rt.csv"
# What a link names the joint grid of CKA of these results by.
WHOLE = "rt~cls~linear CKA (biased)~ORIG + FT: all of 4 models~1000"
# Names that end a script element, an attribute, a comment, a selector, a link or a line.
HOSTILE = (
    "</script><script>document.title='x'</script>",
    '"><img src=x onerror=alert(1)>',
    "a~b&c=d#e%20+'`${1}`",
    "<!--<script>",
    "{{ data }}",
    "\u2028=cmd|' /C calc'!A0\\",
)


class Parts(HTMLParser):
    """The elements of a page that are scripts or have an address, and the texts of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, Any], str]] = []
        self.metas: list[dict[str, Any]] = []
        self.addresses: list[str] = []
        self.titles: list[str] = []
        self.styles: list[str] = []
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._open = tag
        self.addresses += [given[name] or "" for name in ("src", "href") if name in given]
        if tag == "script":
            self.scripts.append((given, ""))
        if tag == "meta":
            self.metas.append(given)

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            given, before = self.scripts[-1]
            self.scripts[-1] = (given, before + data)
        if self._open == "title":
            self.titles.append(data)
        if self._open == "style":
            self.styles.append(data)

    def text(self, name: str) -> str:
        """Return the text of the script element with an id."""
        return next(text for given, text in self.scripts if given.get("id") == name)

    @property
    def data(self) -> Any:
        return json.loads(self.text("data"))

    @property
    def program(self) -> str:
        """Return the script that runs."""
        return next(text for given, text in self.scripts if given.get("type") == "module")


def unpack_text(text: str) -> bytes:
    """Return what is packed in the text of an element."""
    return zlib.decompress(base64.b64decode(text))


def unpack(text: str) -> np.ndarray:
    """Return the float32 numbers of a plane."""
    data = np.frombuffer(unpack_text(text), dtype=np.uint8)
    return np.ascontiguousarray(data.reshape(4, -1).T).view(">f4").ravel()


def cells_of(frame: Any) -> dict[tuple[Any, ...], Any]:
    """Return every cell of every grid of a table: value, low, high and pvalue by names and layers.

    The names are those that the page shows: task, kind, measure, comparison, models.
    """
    from simlab.figures.table import MEASURED
    from simlab.results.results import GRIDS

    found = {}
    columns = [f"{what}_{side}" for side in "xy" for what in ("label", "layer")]
    grids = frame[frame["experiment"].isin(GRIDS)]
    for (task, measure), rows in grids.groupby(["task", MEASURED], sort=False, observed=True):
        setting = (task, str(measure.kind), measure.name)
        numbers = rows[["value", "low", "high", "pvalue"]].to_numpy(np.float64)
        keys = zip(rows["comparison"], *(rows[name] for name in columns), strict=True)
        found |= {(*setting, *key): row for key, row in zip(keys, numbers, strict=True)}
    return found
