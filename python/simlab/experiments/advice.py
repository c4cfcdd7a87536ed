"""How many layers a task needs: chosen on one half of the held-out rows, reported on the other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simlab.errors import UserError
from simlab.models.evaluate import heldout_metric
from simlab.store.results import ADVICE, WHOLE, ResultRow

if TYPE_CHECKING:
    import pandas as pd

    from simlab.tasks import Task

HALVING_SEED = 0
_FEWEST_ROWS = 4
_ROUNDING = 1e-12  # of a difference of two metrics: 0.8 - 0.1 is more than 0.7


def check_tolerance(tolerance: float, task: Task) -> None:
    """Raise UserError for a negative tolerance or too few held-out rows to halve."""
    if not tolerance >= 0:
        raise UserError(f"--advise {tolerance}: wanted a tolerance of at least 0")
    if len(task.heldout) < _FEWEST_ROWS:
        raise UserError(
            f"--heldout-size {len(task.heldout)}: wanted at least {_FEWEST_ROWS} rows for "
            "--advise to halve"
        )


def fewest_layers(values: Sequence[float], wanted: float) -> int | None:
    """The smallest K >= 1 whose metric is at least `wanted` up to rounding, None if there is none.

    Parameters
    ----------
    values
        The metric after every layer, the embedding output (K = 0) first.
    """
    return next((k for k in range(1, len(values)) if values[k] >= wanted - _ROUNDING), None)


def advice_rows(
    logits: np.ndarray,
    whole: np.ndarray,
    task: Task,
    tolerance: float,
    mode: str,
    *,
    label: str,
    seed: int | None,
) -> list[ResultRow]:
    """Choose the fewest layers on a seeded half of the held-out rows.

    Parameters
    ----------
    logits
        Of the model cut after every layer, ``[layers + 1, n, labels]``.
    whole
        Of the fine-tuned model as it is, ``[n, labels]``.

    Returns
    -------
    list of ResultRow
        The whole model's metric on the other half, and there the chosen one's if there is one.
    """
    order = np.random.default_rng(HALVING_SEED).permutation(len(task.heldout))
    chooses, reports = np.array_split(order, 2)
    wanted = heldout_metric(whole, task, chooses) - tolerance
    fewest = fewest_layers([heldout_metric(of, task, chooses) for of in logits], wanted)
    layers = len(logits) - 1
    answers = [(WHOLE, layers, whole)]
    if fewest is not None:
        answers.append((f"{ADVICE}-{mode}", fewest, logits[fewest]))
    return [
        ResultRow(
            comparison=comparison,
            measure=task.metric,
            options=json.dumps({"tolerance": tolerance, "mode": mode}),
            model_x=label,
            seed_x=seed,
            layer_x=layer,
            value=heldout_metric(found, task, reports),
            n=len(reports),
            task=task.name,
        )
        for comparison, layer, found in answers
    ]


def describe_advice(frame: pd.DataFrame) -> list[str]:
    """One line for each advice in a results table."""
    lines = []
    for whole in frame[frame["comparison"] == WHOLE].itertuples():
        options = json.loads(whole.options)
        mode, tolerance = options["mode"], options["tolerance"]
        chosen = frame[
            (frame["comparison"] == f"{ADVICE}-{mode}") & (frame["model_x"] == whole.model_x)
        ]
        start = f"{whole.model_x}, {mode}: "
        if chosen.empty:
            lines.append(f"{start}no number of layers is within {tolerance:g} of the whole model")
            continue
        short = chosen.iloc[0]
        lines.append(
            f"{start}{short['layer_x']} of {whole.layer_x} layers are within {tolerance:g} on one "
            f"half of the held-out rows; on the other {whole.measure} {short['value']:.3f}, the "
            f"whole model {whole.value:.3f} (n = {whole.n:,})"
        )
    return lines
