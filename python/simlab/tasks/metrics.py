"""Metrics by name, each computed by scikit-learn or scipy."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import numpy as np


def _accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(labels, predictions))


def _f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Return the F1 score of class 1 (paraphrase, duplicate); 0 if class 1 is never predicted."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, zero_division=0.0))


def _matthews(labels: np.ndarray, predictions: np.ndarray) -> float:
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(labels, predictions))


def _pearson(labels: np.ndarray, predictions: np.ndarray) -> float:
    from scipy.stats import pearsonr

    return float(pearsonr(predictions, labels).statistic)


def _spearman(labels: np.ndarray, predictions: np.ndarray) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(predictions, labels).statistic)


Metric = Callable[[np.ndarray, np.ndarray], float]
# Each metric takes labels and predictions, shape [n].
METRICS: MappingProxyType[str, Metric] = MappingProxyType(
    {
        "accuracy": _accuracy,
        "f1": _f1,
        "matthews": _matthews,
        "pearson": _pearson,
        "spearman": _spearman,
    }
)
CORRELATIONS = ("pearson", "spearman")  # undefined where all labels are the same
