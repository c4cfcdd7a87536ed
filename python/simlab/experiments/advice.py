"""What stands beside a truncation: simple baselines, and the fewest layers that a task needs.

One half of the held-out rows chooses the number of layers, the other half gives the metric.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from simlab.errors import UserError, argument
from simlab.models.evaluate import heldout_metrics
from simlab.results.results import (
    ADVICE,
    BASELINE,
    MAJORITY,
    TFIDF,
    TFIDF_REGRESSION,
    WHOLE,
    ResultRow,
    Side,
)

if TYPE_CHECKING:
    import pandas as pd

    from simlab.tasks import Examples, Task

INVERSE_PENALTY = 10.0
HALVING_SEED = 0
_FEWEST_ROWS = 4
_ROUNDING = 1e-12  # of a difference of metrics: in floating point, 0.8 - 0.1 is more than 0.7


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


def check_advice(tolerance: float, metric: str | None, task: Task) -> None:
    """Check the tolerance and the metric, and that `task` has enough held-out rows to halve."""
    if not tolerance >= 0:
        raise UserError(f"{argument('tolerance', tolerance)}: wanted a tolerance of at least 0")
    if metric is not None and metric not in task.all_metrics:
        names = ", ".join(task.all_metrics)
        raise UserError(
            f"{argument('metric', metric)}: wanted a metric of task {task.name} ({names})"
        )
    if len(task.heldout) < _FEWEST_ROWS:
        raise UserError(
            f"{argument('heldout_size', len(task.heldout))}: wanted at least {_FEWEST_ROWS} rows "
            f"for {argument('tolerance')} to halve"
        )


def fewest_layers(values: Sequence[float], wanted: float) -> int | None:
    """Return the smallest K >= 1 with a metric of at least `wanted`, up to rounding, or None.

    The first of `values` belongs to the embedding output, K = 0.
    """
    return next((k for k in range(1, len(values)) if values[k] >= wanted - _ROUNDING), None)


def advice_rows(
    logits: np.ndarray,
    whole: np.ndarray,
    task: Task,
    mode: str,
    model: Side,
    *,
    tolerance: float,
    metric: str | None = None,
) -> list[ResultRow]:
    """Choose the fewest layers on a random half of the held-out rows, or of their questions.

    The rows have all metrics on the other half: of the `whole` model, [n, labels], and of the model
    with the fewest layers, if any number of layers is within the tolerance. `logits` are those of
    the model cut after every layer, [layers + 1, n, labels].
    """
    metric = metric or task.metric
    chooses, reports = _halves(task)
    *values, of_whole = (heldout_metrics(of, task, chooses)[metric] for of in (*logits, whole))
    fewest = fewest_layers(values, of_whole - tolerance)
    layers = len(logits) - 1
    answers = [(WHOLE, layers, whole)]
    if fewest is not None:
        answers.append((f"{ADVICE}-{mode}", fewest, logits[fewest]))
    return [
        ResultRow(
            experiment=experiment,
            measure=name,
            options=json.dumps({"tolerance": tolerance, "mode": mode, "metric": metric}),
            **model.columns(),
            layer_x=layer,
            value=value,
            n=len(reports),
            task=task.name,
        )
        for experiment, layer, own_logits in answers
        for name, value in heldout_metrics(own_logits, task, reports).items()
    ]


def _halves(task: Task) -> list[np.ndarray]:
    """Return the held-out rows in two random halves; the answers of a question stay together."""
    rng, questions = np.random.default_rng(HALVING_SEED), task.heldout.questions
    if questions is None:
        return np.array_split(rng.permutation(len(task.heldout)), 2)
    halves = np.array_split(rng.permutation(np.unique(questions)), 2)
    return [np.flatnonzero(np.isin(questions, half)) for half in halves]


def describe_advice(frame: pd.DataFrame) -> list[str]:
    """Return a line of text for each piece of advice in a results table."""
    lines = []
    for whole in frame[frame["experiment"] == WHOLE].itertuples():
        options = json.loads(whole.options)
        mode, tolerance = options["mode"], options["tolerance"]
        if whole.measure != options.get("metric", whole.measure):
            continue  # another metric than the one that chose
        same = frame[(frame["label_x"] == whole.label_x) & (frame["measure"] == whole.measure)]
        chosen = same[same["experiment"] == f"{ADVICE}-{mode}"]
        start = f"{whole.label_x}, {mode}: "
        if chosen.empty:
            lines.append(
                f"{start}no number of layers is enough: the {whole.measure} is always more than "
                f"{tolerance:g} below the whole model's"
            )
            continue
        short = chosen.iloc[0]
        lines.append(
            f"{start}{short['layer_x']} of {whole.layer_x} layers are enough. On the half of the "
            f"held-out rows that chose this number, the {whole.measure} is at most {tolerance:g} "
            f"below the whole model's. On the other half (n = {whole.n:,}) it is "
            f"{short['value']:.3f}, the whole model's {whole.value:.3f}"
        )
    return lines
