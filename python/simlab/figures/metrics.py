"""Choose the metric that figures show, because results have a row for every metric of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simlab.errors import UserError
from simlab.tasks.metrics import METRICS

if TYPE_CHECKING:
    import pandas as pd


def of_metric(frame: pd.DataFrame, metric: str | None = None) -> pd.DataFrame:
    """Return `frame` with one metric of each task; rows with other measures are kept.

    Parameters
    ----------
    frame
        A results table. The rows of a metric are those whose `measure` is its name.
    metric
        Name of a metric. None is the main metric of each task, which every results file stores
        first; so it is for a task without rows of `metric`.

    Raises
    ------
    UserError
        There are rows of metrics, none of them of `metric`.
    """
    scored = frame["measure"].isin(list(METRICS))
    rows = frame.loc[scored, ["task", "measure"]]
    if metric is not None and len(rows) and metric not in set(rows["measure"]):
        found = ", ".join(dict.fromkeys(rows["measure"]))
        raise UserError(f"--metric {metric}: wanted a metric in the results, found {found}")
    shown = dict(rows.drop_duplicates("task").itertuples(index=False, name=None))
    shown |= dict.fromkeys(rows.loc[rows["measure"] == metric, "task"], metric)
    return frame[~scored | (frame["measure"] == frame["task"].map(shown))]
