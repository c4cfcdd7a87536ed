"""Tables of the maps between trained BERTs, from the rows of `sweeps.py ren2023-trained`.

An error, or an accuracy with injected states, belongs to two models, so that its intervals come
from the jackknife over models, as in `simcore claims`. Methods are compared pair by pair.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from simlab.evidence.verdicts import Units
from simlab.results.results import ALIGNMENT, CHOSEN, HELDOUT, IDENTITY, INJECTION, MSE, RELATIVE

if TYPE_CHECKING:
    import pandas as pd

LINEAR, ACCURACY = "linear", "accuracy"
ALL_PAIRS = ("table 4", "attention")  # beginnings of the names of studies of all pairs
COLUMNS = (
    *("experiment", "protocol", "kind", "stage", "measure", "rows", "training", "method", "minus"),
    *("mean", "low", "high", "models", "pairs"),
)
_PROTOCOL = ("fit_on", "continue_with")  # of injection; all alignment here has one
DIGITS = 4
Means = Mapping[tuple[str, str], Mapping[frozenset[str], float]]


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the means over pairs, with intervals, and the differences from the linear map.

    Errors are means over the layers above the embedding output, and over the heads of attention.
    Accuracies are compared with the states that are injected as they are as well.
    """
    import pandas as pd

    rows = [*_errors(_with_options(frame)), *_accuracies(_with_options(frame))]
    return pd.DataFrame(rows, columns=list(COLUMNS)).round(DIGITS)


def settings(frame: pd.DataFrame) -> pd.DataFrame:
    """Return how often the search chose each setting, over pairs of models."""
    rows = _with_options(frame)
    rows = rows[rows[CHOSEN].notna() & rows["experiment"].isin([ALIGNMENT, INJECTION])]
    rows = rows.fillna({"stage_x": "", "comparison": ""})
    by = ["experiment", "protocol", "kind", "stage_x", "method", CHOSEN]
    searches = rows[[*by, "comparison", "label_x", "label_y"]].drop_duplicates()
    return searches.groupby(by).size().rename("pairs").reset_index()


def _with_options(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a column for the method, its training, the part, and the setting."""
    options = [json.loads(text) for text in frame["options"].fillna("{}")]
    chosen = [json.dumps(one[CHOSEN]) if CHOSEN in one else None for one in options]
    return frame.assign(
        method=[one.get("method", "") for one in options],
        training=[one.get("training", "ours") for one in options],
        rows=[one.get("rows", HELDOUT) for one in options],
        protocol=[", ".join(one[name] for name in _PROTOCOL if name in one) for one in options],
        **{CHOSEN: chosen},
    )


def _errors(frame: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    rows = frame[(frame["experiment"] == ALIGNMENT) & (frame["layer_x"] > 0)]
    rows = rows[rows["comparison"].str.startswith(ALL_PAIRS)]
    rows = rows[rows["measure"].isin([MSE, RELATIVE])]
    by = ["kind", "stage_x", "measure", "rows"]
    for (kind, stage, measure, part), some in rows.groupby(by, sort=False):
        where = (ALIGNMENT, "", kind, stage, measure, part)
        yield from _compared(where, _means(some), (LINEAR,))


def _accuracies(frame: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    rows = frame[(frame["experiment"] == INJECTION) & (frame["measure"] == ACCURACY)]
    for (protocol, kind), some in rows.groupby(["protocol", "kind"], sort=False):
        where = (INJECTION, protocol, kind, "ft", ACCURACY, HELDOUT)
        yield from _compared(where, _means(some), (LINEAR, IDENTITY))


def _means(rows: pd.DataFrame) -> Means:
    """Return the mean of each pair of models by training and method.

    Methods that are solved, and not trained, are those of the default training.
    """
    means: dict[tuple[str, str], dict[frozenset[str], float]] = {}
    by = ["training", "method", "label_x", "label_y"]
    for (training, method, x, y), values in rows.groupby(by, sort=False)["value"]:
        means.setdefault((training, method), {})[frozenset([x, y])] = float(values.mean())
    return means


def _compared(
    where: tuple[str, ...], means: Means, others: tuple[str, ...]
) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each method, and for its difference from each of the `others`."""
    for (training, method), of_pair in means.items():
        yield (*where, training, method, "", *_interval(of_pair))
        for other in others:
            base = means.get(("ours", other))
            if base is not None and (training, method) != ("ours", other):
                less = {pair: value - base[pair] for pair, value in of_pair.items()}
                yield (*where, training, method, other, *_interval(less))


def _interval(of_pair: Mapping[frozenset[str], float]) -> tuple[Any, ...]:
    found = Units(of_pair).interval()
    return found.estimate, found.low, found.high, found.units, len(of_pair)
