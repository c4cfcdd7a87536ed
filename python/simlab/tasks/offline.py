"""Read the data sets that come as packages, as tables in the format of the hub."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError
from simlab.store import assets
from simlab.store.files import read_json_lines
from simlab.tasks.frames import GROUP, ROW_ID

if TYPE_CHECKING:
    import pandas as pd

# Questions of QuaRTz come as twins that say the opposite in the same words. With this least cosine
# of their words, all but 40 of the 3,860 questions have a twin, and the largest of 1,836 groups
# has 20 questions.
TWIN_SIMILARITY = 0.65
_QUARTZ_ROW = re.compile(r"(?P<question>.*?)\s+A: (?P<a>.*?)\s+B: (?P<b>.*)", re.DOTALL)


def group_twins(texts: pd.Series, similarity: float) -> np.ndarray:
    """Return the number of the group of each text, int64 [n]; near-equal texts share a group.

    Two texts are in one group if the cosine of their sets of words is at least `similarity`, or if
    a chain of such pairs joins the two texts.
    """
    from scipy.sparse.csgraph import connected_components
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.preprocessing import normalize

    words = normalize(CountVectorizer(binary=True, dtype=np.float64).fit_transform(texts))
    return connected_components((words @ words.T) >= similarity, directed=False)[1]


def _reviews(source: str, name: str) -> pd.DataFrame:
    import pandas as pd

    frame = pd.read_csv(assets.fetch("rt"))
    frame = frame[frame["source"] == source].reset_index(drop=True)
    return frame.assign(**{ROW_ID: [f"{name}-{row}" for row in frame.index]})


def _read_stsb(path: Path, split: str) -> pd.DataFrame:
    import pandas as pd

    # Tab-separated without quoting; some rows have two further columns that name a source.
    lines = path.read_text(encoding="utf-8").split("\n")
    rows = [line.split("\t") for line in lines if line]
    return pd.DataFrame(
        {
            ROW_ID: [f"{split}-{row}" for row in range(len(rows))],
            "sentence1": [row[5] for row in rows],
            "sentence2": [row[6] for row in rows],
            "label": [float(row[4]) for row in rows],
        }
    )


def _quartz_row(path: Path, row: dict[str, Any]) -> dict[str, Any]:
    text = row["input"][-1]["content"]
    parts = _QUARTZ_ROW.fullmatch(text)
    if parts is None:
        raise UserError(f"{path}: wanted a question with answers A and B, found {text!r}")
    return {
        "question": parts["question"],
        "choices": {"text": [parts["a"], parts["b"]], "label": ["A", "B"]},
        "answerKey": row["ideal"],
    }


def _stsb() -> dict[str, pd.DataFrame]:
    """Return the official train and dev splits of STS-B; the test split is not read."""
    folder = assets.fetch("stsb")
    files = {"train": ("sts-train.csv", "train"), "validation": ("sts-dev.csv", "dev")}
    return {split: _read_stsb(folder / file, name) for split, (file, name) in files.items()}


def _quartz() -> dict[str, pd.DataFrame]:
    """Return the questions of QuaRTz, without a split; near twins have one number in `GROUP`."""
    import pandas as pd

    path = assets.fetch("quartz")
    rows = [_quartz_row(path, line) for line in read_json_lines(path)]
    frame = pd.DataFrame(rows).assign(**{ROW_ID: [f"quartz-{row}" for row in range(len(rows))]})
    return {"all": frame.assign(**{GROUP: group_twins(frame["question"], TWIN_SIMILARITY)})}


# Each returns a table for each split, or one under "all".
READERS = {
    "rotten_tomatoes": lambda: {"all": _reviews("rotten_tomatoes", "rt")},
    "imdb": lambda: {"all": _reviews("imdb", "imdb")},
    "stsb": _stsb,
    "quartz": _quartz,
}
