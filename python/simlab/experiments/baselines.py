"""Baselines for a fine-tuned encoder: the majority class and a bag of words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from simlab.results.results import BASELINE, MAJORITY, TFIDF, TFIDF_REGRESSION, ResultRow, Side

if TYPE_CHECKING:
    from simlab.tasks import Examples, Task

INVERSE_PENALTY = 10.0


def majority_rows(task: Task) -> list[ResultRow]:
    """Return a row for each held-out metric of always predicting the most frequent class.

    Return no rows for regression, because a constant has no correlation.
    """
    if task.is_regression:
        return []
    labels = task.heldout.labels
    constant = np.full(len(labels), np.bincount(labels).argmax())
    return baseline_rows(Side(MAJORITY), task.scores(constant, labels), len(labels), task.name)


def tfidf_rows(task: Task) -> list[ResultRow]:
    """Return the held-out metrics of a linear model on TF-IDF weights, trained on the same rows.

    There is a row for each metric. The features are single words. The penalty is weaker than
    scikit-learn's default, which is too strong for rows of unit length: on RT the default costs the
    baseline one to two points. In multiple choice, the model learns which pairs of text and choice
    are right, and predicts the choice of the most likely pair.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline

    head = Ridge() if task.is_regression else LogisticRegression(C=INVERSE_PENALTY, max_iter=1000)
    model = make_pipeline(TfidfVectorizer(), head)
    train, heldout = task.train.each_choice(), task.heldout.each_choice()
    model.fit(_joined(train), train.labels)
    if task.is_multiple_choice:
        likely = model.decision_function(_joined(heldout)).reshape(len(task.heldout), -1)
        predictions = likely.argmax(axis=1)
    else:
        predictions = model.predict(_joined(heldout))
    name = TFIDF_REGRESSION if task.is_regression else TFIDF
    scores = task.scores(predictions, task.heldout.labels)
    return baseline_rows(Side(name), scores, len(predictions), task.name)


def baseline_rows(model: Side, scores: Mapping[str, float], n: int, task: str) -> list[ResultRow]:
    """Return a row of the results table for each metric of a whole model, without layers."""
    return [
        ResultRow(
            experiment=BASELINE, measure=metric, **model.columns(), value=value, n=n, task=task
        )
        for metric, value in scores.items()
    ]


def _joined(examples: Examples) -> list[str]:
    if examples.pairs is None:
        return list(examples.texts)
    return [f"{text} {pair}" for text, pair in zip(examples.texts, examples.pairs, strict=True)]
