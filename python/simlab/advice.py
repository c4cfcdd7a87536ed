"""How many layers a task needs: chosen on one half of the held-out rows, reported on the other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simlab.errors import UserError
from simlab.finetune import predictions_of
from simlab.results import ADVICE, ResultRow

if TYPE_CHECKING:
    import pandas as pd

    from simlab.tasks import Task

HALVING_SEED = 0
_FEWEST_ROWS = 4


def check_tolerance(tolerance: float, task: Task) -> None:
    """Raise UserError for a negative tolerance or too few held-out rows to halve."""
    if not tolerance >= 0:
        raise UserError(f"--advise {tolerance}: wanted a tolerance of at least 0")
    if len(task.heldout) < _FEWEST_ROWS:
        raise UserError(
            f"--advise: wanted at least {_FEWEST_ROWS} held-out rows, found {len(task.heldout)}"
        )


def fewest_layers(values: Sequence[float], tolerance: float) -> int:
    """The smallest K >= 1 whose metric is at most `tolerance` below that of all layers.

    Parameters
    ----------
    values
        The metric after every layer, the embedding output (K = 0) first.
    """
    enough = (k for k in range(1, len(values)) if values[k] >= values[-1] - tolerance)
    return next(enough, len(values) - 1)  # a full model without a metric (nan) stays whole


def advice_rows(
    logits: np.ndarray, task: Task, tolerance: float, mode: str, *, label: str, seed: int | None
) -> list[ResultRow]:
    """Choose the fewest layers on a seeded half of the held-out rows.

    Parameters
    ----------
    logits
        Of the model cut after every layer, ``[layers + 1, n, labels]``.

    Returns
    -------
    list of ResultRow
        The chosen model's metric on the other half, then all layers' there.
    """
    order = np.random.default_rng(HALVING_SEED).permutation(len(task.heldout))
    chooses, reports = np.array_split(order, 2)
    fewest = fewest_layers([_value(of, task, chooses) for of in logits], tolerance)
    return [
        ResultRow(
            comparison=f"{ADVICE}-{mode}",
            measure=task.metric,
            options=json.dumps({"tolerance": tolerance}),
            model_x=label,
            seed_x=seed,
            layer_x=layer,
            value=_value(logits[layer], task, reports),
            n=len(reports),
            task=task.name,
        )
        for layer in (fewest, len(logits) - 1)
    ]


def describe_advice(frame: pd.DataFrame) -> list[str]:
    """One line for each advice in a results table."""
    rows = frame[frame["comparison"].str.startswith(f"{ADVICE}-")]
    lines = []
    for (comparison, model), pair in rows.groupby(["comparison", "model_x"], sort=False):
        short, full = pair.iloc[0], pair.iloc[1]
        tolerance = json.loads(short["options"])["tolerance"]
        lines.append(
            f"{model}, {comparison.removeprefix(f'{ADVICE}-')}: {short['layer_x']} of "
            f"{full['layer_x']} layers are within {tolerance:g} on one half; on the other "
            f"{short['measure']} {short['value']:.3f}, all layers {full['value']:.3f} "
            f"(n = {short['n']:,})"
        )
    return lines


def _value(logits: np.ndarray, task: Task, rows: np.ndarray) -> float:
    return task.score(predictions_of(logits[rows], task), task.heldout.labels[rows])
