"""Figures of results that are no grids, as SVG, and the rows that they were drawn from."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from simlab.figures.draw import curve_figures, drawn
from simlab.report.planes import compress
from simlab.results.results import COLUMNS, DRAWS
from simlab.tasks.metrics import of_metric

if TYPE_CHECKING:
    import pandas as pd

# Neither XML nor a font has them; JSON in options has them escaped.
_NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_TEXTS = ("label_x", "label_y", "task", "comparison")

# What the filter of the page names, and the columns that hold it.
_FIELDS = {
    "task": ("task",),
    "kind": ("kind",),
    "measure": ("measure",),
    "model": ("label_x", "label_y"),
    "seed": ("seed_x", "seed_y"),
}

Views = tuple[list[dict[str, Any]], dict[str, str]]


def curves(frame: pd.DataFrame, metric: str | None = None) -> Views:
    """Return the figures, described as JSON values, and their compressed pictures and rows.

    `frame` comes from `without_copies`.
    """
    frame = frame.assign(
        **{n: frame[n].str.replace(_NO_TEXT, "\ufffd", regex=True) for n in _TEXTS}
    )
    views: list[dict[str, Any]] = []
    text: dict[str, str] = {}
    tables: dict[int, str] = {}  # several figures show the same rows
    for number, (name, figure, rows) in enumerate(curve_figures(of_metric(frame, metric))):
        picture = f"figure-{number}"
        text[picture] = compress(drawn(figure, "svg"))
        if id(rows) not in tables:
            tables[id(rows)] = f"rows-{number}"
            text[f"rows-{number}"] = compress(_table(rows))
        size = figure.get_size_inches()
        view = {"name": name, "picture": picture, "rows": tables[id(rows)], "count": len(rows)}
        view["title"] = str(figure.get_label())
        views.append(
            view | {"width": round(float(size[0]) * 96), "shape": _shape(size), "of": _of(rows)}
        )
    return views, text


def _of(rows: pd.DataFrame) -> dict[str, list[Any]]:
    """Return the values of `_FIELDS` in rows, each once, which the page's filter searches."""
    return {
        field: sorted({value for name in names for value in rows[name].dropna().tolist()})
        for field, names in _FIELDS.items()
    }


def _shape(size: Any) -> float:
    return round(float(size[1] / size[0]), 3)


def _table(rows: pd.DataFrame) -> bytes:
    """Return rows as JSON: the names of the columns that have a value, and the values."""
    filled = [name for name in COLUMNS if name != DRAWS and rows[name].notna().any()]
    table = rows[filled].astype(object).to_numpy().tolist()
    plain = [[_plain(value) for value in row] for row in table]
    return json.dumps({"columns": filled, "rows": plain}, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    import pandas as pd

    if value is pd.NA or value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return str(value) if isinstance(value, float) and math.isinf(value) else value
