"""Metrics by name, most by scikit-learn or scipy, and the rows of one metric in results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from simlab.errors import UserError, argument

if TYPE_CHECKING:
    import pandas as pd


def _accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    # Scikit-learn's checks take sixty times as long, in each of the draws of an interval.
    return float(np.mean(labels == predictions))


def _f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Return the F1 score of class 1 (paraphrase, duplicate); 0 if class 1 is never predicted."""
    return float(_f1_of_classes(labels, predictions, np.array([1]))[0])


def _f1_macro(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Return the mean of the F1 scores of all classes; 0 for a class that is never predicted."""
    return float(np.mean(_f1_of_classes(labels, predictions, np.union1d(labels, predictions))))


def _f1_of_classes(labels: np.ndarray, predictions: np.ndarray, classes: np.ndarray) -> np.ndarray:
    found, wanted = (rows == classes[:, None] for rows in (predictions, labels))
    either = found.sum(1) + wanted.sum(1)
    return 2 * (found & wanted).sum(1) / np.maximum(either, 1)


def _exact_match(labels: np.ndarray, predictions: np.ndarray, questions: np.ndarray) -> float:
    """Return the share of questions all of whose answers are judged right (MultiRC)."""
    _, rows = np.unique(questions, return_inverse=True)
    return float(np.mean(np.bincount(rows, labels != predictions) == 0))


def _matthews(labels: np.ndarray, predictions: np.ndarray) -> float:
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(labels, predictions))


def _correlation(name: str, labels: np.ndarray, predictions: np.ndarray) -> float:
    from scipy import stats

    return float(getattr(stats, name)(predictions, labels).statistic)


Metric = Callable[..., float]
# Each metric takes labels and predictions, shape [n]; one in `OF_QUESTIONS` also takes the numbers
# of the questions that the rows answer.
METRICS: MappingProxyType[str, Metric] = MappingProxyType(
    {
        "accuracy": _accuracy,
        "exact_match": _exact_match,
        "f1": _f1,
        "f1_macro": _f1_macro,
        "matthews": _matthews,
        "pearson": partial(_correlation, "pearsonr"),
        "spearman": partial(_correlation, "spearmanr"),
    }
)
CORRELATIONS = ("pearson", "spearman")  # undefined where all labels are the same
BELOW_ZERO = ("matthews", *CORRELATIONS)  # from -1 to 1; the others are shares
OF_QUESTIONS = ("exact_match",)


def score(
    metric: str, labels: np.ndarray, predictions: np.ndarray, questions: np.ndarray | None = None
) -> float:
    """Return metric `metric` of predictions, [n], by its name in `METRICS`."""
    of_rows = (labels, predictions)
    return METRICS[metric](*of_rows, *([questions] if metric in OF_QUESTIONS else []))


def of_metric(frame: pd.DataFrame, metric: str | None = None) -> pd.DataFrame:
    """Return results with one metric of each task, the one that figures and claims are about.

    A task keeps its main metric, which every results file stores first, if `metric` is None or the
    task has no rows of it. Rows with other measures than metrics are kept.
    """
    scored = frame["measure"].isin(list(METRICS))
    rows = frame.loc[scored, ["task", "measure"]]
    if metric is not None and len(rows) and metric not in set(rows["measure"]):
        found = ", ".join(dict.fromkeys(rows["measure"]))
        raise UserError(
            f"{argument('metric', metric)}: wanted a metric in the results, found {found}"
        )
    metrics = dict(rows.drop_duplicates("task").itertuples(index=False, name=None))
    metrics |= dict.fromkeys(rows.loc[rows["measure"] == metric, "task"], metric)
    return frame[~scored | (frame["measure"] == frame["task"].map(metrics))]
