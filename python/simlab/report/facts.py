"""Facts of single layers: localization, truncation, skipping and influence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.figures.names import describe
from simlab.results.results import (
    INFLUENCE,
    LOCALIZATION,
    SPANS,
    TRUNCATIONS,
)

if TYPE_CHECKING:
    import pandas as pd

UNKNOWN = -1  # a seed that the table does not say
Model = tuple[str, int]
_DETAILS = ("kind", "estimator", "kernel", "bandwidth", "options")


def seed_of(value: Any) -> int:
    """Return a seed of the table, or `UNKNOWN`."""
    import pandas as pd

    return UNKNOWN if pd.isna(value) else int(value)


def of_layers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that say something of one layer."""
    skipped = frame["experiment"].isin(SPANS) & (frame["layer_y"] - frame["layer_x"] == 1)
    alone = frame["experiment"].isin((LOCALIZATION, *TRUNCATIONS.values()))
    return frame[alone | skipped.fillna(False).astype(bool)]


def facts(frame: pd.DataFrame, numbers: dict[Model, int]) -> Iterator[list[Any]]:
    """Yield task, model, layer, name of the value, value, low, high, n, and details.

    The layer that is skipped, or whose influence it is, is the upper one of its span. The details
    are the kind of representation and the options, by which one layer may have several values of
    one name.
    """
    for row in of_layers(frame).to_dict("records"):
        work = row["experiment"]
        alone = {LOCALIZATION: LOCALIZATION, INFLUENCE: row["measure"]}
        layer = int(row["layer_y" if work in SPANS else "layer_x"])
        known = [
            float(row[name]) if np.isfinite(row[name]) else None
            for name in ("value", "low", "high")
        ]
        parts = [*describe({name: row[name] for name in _DETAILS}).values()]
        if work == LOCALIZATION and isinstance(row["comparison"], str):
            parts.append(row["comparison"])  # a score depends on the models of its joint grid
        details = ", ".join(parts)
        model = numbers[row["label_x"], seed_of(row["seed_x"])]
        name = alone.get(work, f"{row['measure']}, {work}")
        yield [row["task"], model, layer, name, *known, int(row["n"]), details]
