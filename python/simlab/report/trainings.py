"""Trainings: labels that name the step of a model, and every layer by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from simlab.figures.curves import reference_name
from simlab.figures.style import layer_names
from simlab.figures.table import MEASURED, Measured, between_steps, with_seeds, without_seed
from simlab.results.results import TRAINING, at_step, run_names

_KEPT = 0.9  # of a similarity whose highest value is 1
_BY = ("task", "comparison", MEASURED)
_RUN = ("label_x", "seed_x", "base_x", "n")
_DIGITS = 5


def named_by_step(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table in which the label of a model at a step ends with the step."""
    changed = {}
    for label, step in (("label_x", "step_x"), ("label_y", "step_y")):
        rows = frame[frame[step].notna() & (frame["experiment"] != TRAINING)]
        number = rows.groupby([label, step], sort=False).ngroup()  # by first appearance
        pairs = rows[[label, step]].drop_duplicates()
        names = []
        for name, reached in pairs.itertuples(index=False, name=None):
            end = at_step("", int(reached))
            names.append(name if name.endswith(end) else name + end)
        if names != pairs[label].tolist():
            column = frame[label].astype(object)
            column.loc[rows.index] = np.array(names, dtype=object)[number]
            changed[label] = column
    return frame.assign(**changed)


def trainings(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the similarity of every layer with its reference by step, over the seeds of a run."""
    rows = frame[(between_steps(frame) | (frame["experiment"] == TRAINING))]
    rows = rows[rows["layer_x"] == rows["layer_y"]]
    rows = rows.assign(label_x=run_names(rows["label_x"]))
    for _, part in rows.groupby(list(_BY), dropna=False, sort=False, observed=True):
        reference = reference_name(str(part["comparison"].iloc[0]))
        for (stem, n, *_), seeds in _runs(part).items():
            run = with_seeds(stem, [seed for seed, _ in seeds if seed is not None])
            about = {"run": run, "reference": reference, "n": int(n)}
            yield _training(part, about, [table for _, table in seeds])


def _runs(rows: pd.DataFrame) -> dict[tuple[Any, ...], list[tuple[int | None, pd.DataFrame]]]:
    """Return the values of every seed, a row for each step, by the run that they are seeds of."""
    runs: dict[tuple[Any, ...], list[tuple[int | None, pd.DataFrame]]] = {}
    for (label, *facts, n), run in rows.groupby(list(_RUN), dropna=False, sort=False):
        seed, base = (None if pd.isna(fact) else fact for fact in facts)
        if run.duplicated(["step_x", "layer_x"]).any():
            continue  # one comparison with several references: no curve, but its grids are there
        table = run.pivot(index="step_x", columns="layer_x", values="value")
        stem = without_seed(label, seed, base)
        key = (stem, n, tuple(table.index), tuple(table.columns))
        runs.setdefault(key, []).append((seed, table))
    return runs


def _training(
    rows: pd.DataFrame, about: dict[str, Any], seeds: list[pd.DataFrame]
) -> dict[str, Any]:
    first, table = rows.iloc[0], seeds[0]
    measure: Measured = first[MEASURED]
    values = np.stack([seed.to_numpy(dtype=float).T for seed in seeds])  # seeds, layers, steps
    finite = np.ma.masked_invalid(values)
    number, mean = finite.count(axis=0), finite.mean(axis=0).filled(np.nan)
    sd = np.where(number > 1, np.ma.filled(finite.std(axis=0, ddof=1), np.nan), np.nan)
    ends = rows["step_y"].unique()
    training = {
        "task": str(first["task"]),
        "kind": measure.kind or "",
        "measure": measure.measure,
        "name": measure.name,
        **about,
        # The step that all rows are compared with, if there is one.
        "end": int(ends[0]) if len(ends) == 1 and rows["step_y"].notna().all() else None,
        "range": list(measure.colours([values[np.isfinite(values)]])),
        "steps": [int(step) for step in table.index],
        "layers": [int(layer) for layer in table.columns],
        "mean": _plain(mean),
        "sd": _plain(sd),
        "number": number.tolist(),
    }
    return training | {"fact": _fact(training, mean)}


def _plain(table: np.ndarray) -> list[list[float | None]]:
    return [
        [round(float(value), _DIGITS) if np.isfinite(value) else None for value in line]
        for line in table
    ]


def _fact(training: dict[str, Any], mean: np.ndarray) -> str:
    """Return from which step on the first layer and the last one are as they are in the end."""
    if training["range"][1] != 1.0 or "the last step" not in training["reference"]:
        return ""
    since: dict[int, int | None] = {}  # the first step from which on the layer is similar enough
    for layer, values in zip(training["layers"], mean, strict=True):
        if np.isfinite(values).any():
            below = np.flatnonzero(~(values >= _KEPT))
            start = int(below[-1]) + 1 if len(below) else 0
            since[layer] = training["steps"][start] if start < len(values) else None
    reached = {layer: step for layer, step in since.items() if step is not None}
    missed = [layer for layer in since if layer not in reached]
    stays = f"its {training['name']} with {training['reference']} stays at {_KEPT:g} or more"
    begin = f"On {training['task']}, in the training of {training['run']}"
    if not reached:
        return f"{begin}, no layer settles before the last step: where one does, {stays}."
    early, late = min(reached, key=reached.__getitem__), max(reached, key=reached.__getitem__)
    if not missed and reached[early] == reached[late]:
        return f"{begin}, all layers settle by step {reached[late]:,}: from then on {stays}."
    last = (
        f"{_layers(missed)} not before the last step"
        if missed
        else f"{_layer(late)} last, from step {reached[late]:,} on"
    )
    return (
        f"{begin}, {_layer(early)} settles first, from step {reached[early]:,} on, and {last}: "
        f"from then on {stays}."
    )


def _layer(layer: int) -> str:
    return f"layer {layer}" if layer else "the embedding output"


def _layers(layers: list[int]) -> str:
    if len(layers) == 1:
        return _layer(layers[0])
    return f"{len(layers)} layers (" + ", ".join(layer_names(layers)) + ")"
