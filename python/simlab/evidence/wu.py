"""Claims of Wu et al. 2020: depth, families, localization, fine-tuning and freezing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from simlab.evidence.claim import Quantity, Values, compared, depth_trend, mean, note, pairs_counted
from simlab.evidence.rows import PRETRAINED, TUNED, VARIANT, Task, by_measure, first_variant
from simlab.representations.kinds import ATTENTION
from simlab.results.results import FREEZING, GRIDS, LOCALIZATION, RELATIVE

TOP_SHARE = 0.25  # of the layers of a model
STANDARD_LOCALITY = 0.1  # least change of a standardised score, in standard deviations
OF_NEURONS = ("neuronsim", "mixedsim")


def _top_layers_change(task: Task) -> Iterator[Quantity]:
    grids = task.tuning(task.rows(*GRIDS))
    for measure, rows in by_measure(grids[grids["layer_x"] == grids["layer_y"]]):
        yield _change(task, rows, f"1 - {measure}", lambda similarity: 1 - similarity)
    maps = task.tuning(task.maps())
    maps = maps[maps["measure"] == RELATIVE]
    for (method, kind), rows in maps.groupby(["method", "kind"], sort=False):
        yield _change(task, rows, f"held-out error of {method} maps of {kind}", np.positive)


def _change(
    task: Task, rows: pd.DataFrame, what: str, change: Callable[..., np.ndarray]
) -> Quantity:
    # Both directions of an asymmetric measure are averaged.
    curves = task.by(rows[rows["layer_x"] > 0], "x", "layer_x")
    trends = {
        model: depth_trend(layers, change(curve)) for model, (layers, curve) in curves.items()
    }
    text = f"Spearman's correlation of depth and {what}"
    return Quantity(text, trends, note(*rows.get("left_out", ())))


def _localization(task: Task) -> Iterator[tuple[str, list[pd.DataFrame]]]:
    """Yield each definition of the score and its joint grids, the embedding output left out."""
    rows = task.rows(LOCALIZATION)
    rows = rows[rows["layer_x"] > 0].dropna(subset="value")
    for definition, some in rows.groupby("options", dropna=False, sort=False):
        company = first_variant(some).groupby("comparison", dropna=False, sort=False)
        joint = [table for _, table in company]
        joint.sort(
            key=lambda table: (bool((table["role_x"] == TUNED).any()), -table["x"].nunique())
        )
        yield "standardized " * isinstance(definition, str) + "localization", joint


def _higher_layers_localized(task: Task) -> Iterator[Quantity]:
    roles = task.who["role"]
    for what, joint in _localization(task):
        once = pd.concat(joint).drop_duplicates(["x", "layer_x"])
        curves = task.by(once, "x", "layer_x")
        trends = {model: depth_trend(*curve) for model, curve in curves.items()}
        for role, tuned in (("pretrained", False), ("fine-tuned", True)):
            selected = {m: t for m, t in trends.items() if (roles[m] == TUNED) == tuned}
            falls = sum(trend[0] < 0 for trend in selected.values())
            yield Quantity(
                f"Spearman's correlation of depth and {what}, {role} models",
                selected,
                f"falls with depth in {falls} of {len(selected)} models",
            )


def _tuning_delocalizes(task: Task) -> Iterator[Quantity]:
    role, origin = task.who["role"], task.who["origin"]
    for what, joint in _localization(task):
        changes: dict[str, np.ndarray] = {}
        # A score depends on the models of its joint grid, so that each is compared within one.
        for rows in joint:
            curves = {model: curve for model, (_, curve) in task.by(rows, "x", "layer_x").items()}
            tops = {
                m: mean(curve[-math.ceil(TOP_SHARE * len(curve)) :]) for m, curve in curves.items()
            }
            for model, top in tops.items():
                origins = [m for m in tops if origin[m] == origin[model]]
                before = [m for m in origins if role[m] == PRETRAINED]
                if role[model] == TUNED and len(before) == 1:
                    changes.setdefault(model, top - tops[before[0]])
        yield Quantity(
            f"{what} of the top layers, fine-tuned minus pretrained",
            changes,
            least=-STANDARD_LOCALITY if what.startswith("standardized") else None,
        )


def _equal_depth(task: Task) -> Iterator[Quantity]:
    for measure, rows in by_measure(task.untuned(task.rows(*GRIDS), "root")):
        gains = task.pairs({xy: _gain(*grid) for xy, grid in task.grids(rows).items()})
        yield Quantity(
            f"{measure} at equal relative depth minus elsewhere", gains, pairs_counted(gains)
        )


def _gain(x: np.ndarray, y: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Return by how much layers at equal relative depth are more similar than other layers."""
    distance = np.abs(np.subtract.outer(x / max(x), y / max(y))).astype(float)
    gains = []
    for far, values in ((distance, grid), (distance.T, grid.swapaxes(0, 1))):
        nearest = np.isclose(far, far.min(axis=1, keepdims=True))[..., None]
        near, other = (mean(np.where(side, values, np.nan), 1) for side in (nearest, ~nearest))
        gains.append(near - other)
    return mean(np.concatenate(gains))


def _means(task: Task, rows: pd.DataFrame) -> dict[tuple[str, str], np.ndarray]:
    """Return the mean similarity over all layers of each two models."""
    grids = task.grids(rows)
    return {xy: mean(grid.reshape(-1, grid.shape[2])) for xy, (_, _, grid) in grids.items()}


def _families_alike(task: Task) -> Iterator[Quantity]:
    for measure, rows in by_measure(task.untuned(task.rows(*GRIDS), "origin")):
        within: dict[Any, np.ndarray] = {}
        across: dict[Any, np.ndarray] = {}
        for pair, value in task.pairs(_means(task, rows)).items():
            families = {task.who["family"][model] for model in pair}
            if families <= task.options.families.keys():
                (within if len(families) == 1 else across)[pair] = value
        if within and across:
            yield Quantity(f"{measure} within families minus across families", within, minus=across)


def _representations_not_neurons(task: Task) -> Iterator[Quantity]:
    # Measures differ in their scales and in their values at chance. So each is divided by the mean
    # similarity of different layers within the two models, which the paper compares with too. A
    # measure that is not 0 for unrelated layers cannot show more similarity than `neuronsim` does:
    # of 64 Gaussian columns and 1,000 rows, SVCCA and PWCCA leave a share of .28, `neuronsim` .10.
    grids = _of_states(task.rows(*GRIDS))
    biased = ~grids["estimator"].eq("unbiased").fillna(False).to_numpy(bool)
    grids = grids.iloc[np.argsort(biased, kind="stable")]
    inside = grids[(grids["x"] == grids["y"]) & (grids["layer_x"] != grids["layer_y"])]
    shares: dict[str, Values] = {}
    unable: dict[str, str] = {}
    for measure, rows in by_measure(task.untuned(grids, "architecture")):
        columns = ["measure", *VARIANT]
        ways = rows[columns].drop_duplicates()
        alike = inside.reset_index().merge(ways, on=columns).set_index("index")  # nulls are equal
        within = {x: value for (x, _), value in _means(task, alike).items()}
        if not rows["estimator"].eq("unbiased").fillna(False).all():
            unable[measure] = f"this {measure} is not 0 for unrelated layers, as unbiased CKA is"
        shares[measure] = {
            pair: value / mean([within[model] for model in pair])
            for pair, value in task.pairs(_means(task, rows)).items()
            if within.keys() >= set(pair)
        }
    neurons = shares.get("neuronsim", {})
    for measure in (name for name in shares if name not in OF_NEURONS):
        within = {pair: value for pair, value in shares[measure].items() if pair in neurons}
        sides = {measure: within, "neuronsim": {pair: neurons[pair] for pair in within}}
        text = f"share of {measure} that is left between architectures minus that of neuronsim"
        yield compared(text, sides, unable=unable.get(measure, ""))


def _lower_layers_alike(task: Task) -> Iterator[Quantity]:
    grids = _of_states(task.rows(*GRIDS))
    grids = grids[~grids["measure"].isin(OF_NEURONS)]
    for measure, rows in by_measure(task.untuned(grids, "architecture")):
        trends = {
            xy: (depth_trend(x, mean(grid, 1)) + depth_trend(y, mean(grid, 0))) / 2
            for xy, (x, y, grid) in task.grids(rows).items()
        }
        text = (
            f"Spearman's correlation of depth and {measure} to all layers of another architecture"
        )
        yield Quantity(text, task.pairs(trends), pairs_counted(task.pairs(trends)))


def _of_states(grids: pd.DataFrame) -> pd.DataFrame:
    return grids[grids["kind"].fillna("") != ATTENTION]


def _freeze_bottom(task: Task) -> Iterator[Quantity]:
    rows = task.rows(FREEZING, metric=True)
    for way in sorted(rows["label_x"].unique(), key=lambda way: (len(way), way)):
        if way.startswith("bottom:"):
            other = way.replace("bottom", "top")
            top, bottom = (
                task.by(rows[rows["label_x"] == label], "x", "seed_x", once=True)
                for label in (other, way)
            )
            tops = {seeds[0]: values[0] for seeds, values in top.values()}
            gains = {
                model: values[0] - tops[seeds[0]]
                for model, (seeds, values) in bottom.items()
                if seeds[0] in tops
            }
            yield Quantity(f"metric with {way} minus with {other}", gains)
