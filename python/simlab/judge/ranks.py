"""Ranks of measures: in each test, and as a mean over the tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from simlab.judge.scores import RANKED, SMALL_IS_GOOD

if TYPE_CHECKING:
    import pandas as pd


def ranked(rows: Iterable[Mapping[str, Any]], asked: Collection[str]) -> pd.DataFrame:
    """Return the scores, and a rank for each that ranks its test; one without a value is last."""
    import pandas as pd

    frame = pd.DataFrame(rows)
    frame.insert(2, "asked", frame["measure"].isin(asked))
    frame["ranked"] = frame["score"] == frame["test"].map(RANKED)
    good = frame["value"].where(~frame["score"].isin(SMALL_IS_GOOD), -frame["value"])
    groups = good.groupby([frame["domain"], frame["test"], frame["score"]])
    frame["rank"] = groups.rank(ascending=False, na_option="bottom").where(frame["ranked"])
    return frame


def mean_ranks(frame: pd.DataFrame) -> pd.Series:
    """Return the mean rank of each measure over tests and domains, the best first."""
    chosen = frame[frame["ranked"]]
    means: pd.Series = chosen.groupby("measure", sort=False)["rank"].mean()
    return means.sort_values(kind="stable")
