"""Claims of Wu et al. 2020: depth, families, localization, fine-tuning and freezing."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from simlab.evidence.claim import BELOW, Evidence
from simlab.evidence.intervals import Value, difference_of_groups, value_of
from simlab.evidence.labels import PRETRAINED, TUNED, Who
from simlab.evidence.rows import (
    VARIANT,
    TaskRows,
    by_measure,
    depth_trend,
    layer_table,
    unordered,
)
from simlab.evidence.studies import left_out, note
from simlab.evidence.wording import ALIKE, SLIGHT, TREND, number
from simlab.representations.kinds import ATTENTION
from simlab.store.results import FREEZING, HELDOUT, RELATIVE

if TYPE_CHECKING:
    import pandas as pd

TOP_SHARE = 0.25  # of the layers of a model
LOCALITY = 0.02  # least change of a localization score
STANDARD_LOCALITY = 0.1  # the same of standardised means, in standard deviations
NEURONS, MIXED = OF_NEURONS = ("neuronsim", "mixedsim")
_WITHIN, _ACROSS = "within", "across"


def change_grows(rows: TaskRows) -> Iterator[Evidence]:
    """Correlate the change of each layer by fine-tuning with depth."""
    grids = rows.grids()
    grids = grids[rows.tuning(grids)]
    for measure, part in by_measure(grids[grids["layer_x"] == grids["layer_y"]]):
        # Both directions of an asymmetric measure are averaged.
        yield _change_trend(part.assign(value=1 - part["value"]), f"1 - {measure}")
    errors = rows.alignment()
    errors = errors[rows.tuning(errors) & (errors["rows"] == HELDOUT)]
    for (method, kind), part in errors[errors["measure"] == RELATIVE].groupby(
        ["method", "kind"], sort=False
    ):
        what = f"held-out error of {method} maps of {kind}"
        yield _change_trend(part, what, left_out(part))


def _change_trend(rows: pd.DataFrame, what: str, unread: str = "") -> Evidence:
    tuned = rows["x"].where(rows["role_x"] == TUNED, rows["y"])
    rows = rows[rows["layer_x"] > 0].assign(tuned=tuned)
    curves = rows.pivot_table(index="layer_x", columns="tuned", values="value").sort_index()
    values = [value_of(str(model), depth_trend(curves.index, curves[model])) for model in curves]
    means = curves.mean(axis=1)
    ends = [f"layer {means.index[at]}: {number(means.iloc[at])}" for at in (0, -1)]
    words = note(", ".join(ends), unread)
    quantity = f"Spearman's correlation of depth and {what}"
    return Evidence(quantity, values, TREND, note=words, signs=True)


def localization_grows(rows: TaskRows) -> Iterator[Evidence]:
    """Correlate the localization score of each layer with depth."""
    for what, scores in rows.localization():
        once = scores.drop_duplicates(["x", "layer_x"])
        for name, of_role in (
            ("pretrained", once[once["role_x"] != TUNED]),
            ("fine-tuned", once[once["role_x"] == TUNED]),
        ):
            values = [
                value_of(str(model), depth_trend(some["layer_x"], some["value"]))
                for model, some in of_role.groupby("x", sort=False)
            ]
            if values:
                falls = sum(found.value < 0 for found in values)
                yield Evidence(
                    f"Spearman's correlation of depth and {what}, {name} models",
                    values,
                    TREND,
                    note=f"falls with depth in {falls} of {len(values)} models",
                    signs=True,
                )


def tuning_delocalizes(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the localization of the top layers before and after fine-tuning."""
    for what, scores in rows.localization():
        origin = scores["x"].map(rows.origins)
        changes: dict[str, float] = {}
        # A score depends on the models of its joint grid, so that each is compared within one.
        for _, some in scores.groupby([origin, scores["comparison"].fillna("")], sort=False):
            before, after = (some[some["role_x"] == role] for role in (PRETRAINED, TUNED))
            if before["x"].nunique() == 1:
                for model, mine in after.groupby("x", sort=False):
                    changes.setdefault(str(model), _top(mine) - _top(before))
        if changes:
            quantity = f"{what} of the top layers, fine-tuned minus pretrained"
            values = [*map(value_of, changes, changes.values())]
            least = LOCALITY if scores["options"].isna().all() else STANDARD_LOCALITY
            yield Evidence(quantity, values, -least, BELOW)


def _top(scores: pd.DataFrame) -> float:
    """Return the mean score of the top layers."""
    count = max(1, math.ceil(TOP_SHARE * len(scores)))
    return float(scores.sort_values("layer_x")["value"].tail(count).mean())


def equal_depth(rows: TaskRows) -> Iterator[Evidence]:
    """Compare layers at equal relative depth with other layers by their similarity."""
    grids = rows.grids()
    for measure, of_measure in by_measure(grids[_different(rows, grids, "root")]):
        values = [
            Value(pair, float(np.mean([_gain(layer_table(one)) for one in directions])))
            for pair, directions in unordered(of_measure)
        ]
        yield Evidence(
            f"{measure} at equal relative depth minus elsewhere",
            values,
            ALIKE,
            note=f"{len(values)} pair{'s' * (len(values) > 1)} of models",
        )


def _different(rows: TaskRows, some: pd.DataFrame, fact: str) -> pd.Series:
    """Return which rows compare two models before fine-tuning that differ in a fact of `Who`."""
    facts = {name: getattr(one, fact) for name, one in rows.who.items()}
    differ = some["x"].map(facts) != some["y"].map(facts)
    return differ & (some["role_x"] != TUNED) & (some["role_y"] != TUNED)


def _gain(table: pd.DataFrame) -> float:
    """Return by how much layers at equal relative depth are more similar than other layers.

    For each layer of either model, the layer of the other model that is nearest in relative depth
    is compared with the mean over its other layers; the result is the mean over layers.
    """
    values = table.to_numpy(float)
    depths = [np.asarray(side, float) / max(side) for side in (table.index, table.columns)]
    gains = []
    for matrix, mine, others in ((values, *depths), (values.T, *depths[::-1])):
        for row, depth in zip(matrix, mine, strict=True):
            distance = np.abs(others - depth)
            nearest = np.isclose(distance, distance.min())
            near, far = row[nearest], row[~nearest]
            if np.isfinite(near).any() and np.isfinite(far).any():
                gains.append(np.nanmean(near) - np.nanmean(far))
    return float(np.mean(gains)) if gains else math.nan


def families_alike(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the similarity of models within families and across families."""
    grids = rows.grids()
    for measure, of_measure in by_measure(grids[_different(rows, grids, "origin")]):
        values = []
        for pair, directions in unordered(of_measure):
            families = {rows.who[model].base for model in pair}
            if not families <= rows.options.families.keys():
                continue
            means = [float(np.nanmean(layer_table(one).to_numpy(float))) for one in directions]
            group = _WITHIN if len(families) == 1 else _ACROSS
            values.append(Value(pair, sum(means) / len(means), group))
        if len({pair_value.group for pair_value in values}) == 2:
            yield Evidence(
                f"{measure} within families minus across families",
                values,
                ALIKE,
                statistic=difference_of_groups(_WITHIN, _ACROSS),
            )


def alike_as_a_whole(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the share of similarity that is left between models, of layers and of neurons.

    Measures differ in their scales and in their values at chance. So each is divided by the mean
    similarity of different layers within the two models, which the paper compares with too. A
    measure that is not 0 for unrelated layers cannot show more similarity than `neuronsim` does:
    of 64 Gaussian columns and 1,000 rows, SVCCA and PWCCA leave a share of .28, `neuronsim` .10.
    """
    grids = _unbiased_first(_of_states(rows.grids()))
    within = grids[(grids["x"] == grids["y"]) & (grids["layer_x"] != grids["layer_y"])]
    shares: dict[str, dict[frozenset[str], float]] = {}
    unable: dict[str, str] = {}
    for measure, of_measure in by_measure(grids[_different(rows, grids, "architecture")]):
        own = {
            str(model): float(np.nanmean(layer_table(one).to_numpy(float)))
            for model, one in _alike_in_variant(within, of_measure).groupby("x", sort=False)
        }
        if not of_measure["estimator"].eq("unbiased").fillna(False).all():
            unable[measure] = f"this {measure} is not 0 for unrelated layers, as unbiased CKA is"
        for pair, directions in unordered(of_measure):
            if pair <= own.keys():
                means = [np.nanmean(layer_table(one).to_numpy(float)) for one in directions]
                inside = float(np.mean([own[model] for model in pair]))
                shares.setdefault(measure, {})[pair] = float(np.mean(means)) / inside
    neurons = shares.pop(NEURONS, {})
    shares.pop(MIXED, None)
    for measure, of_pairs in shares.items():
        both = [pair for pair in of_pairs if pair in neurons]
        if both:
            words = [float(np.mean([some[pair] for pair in both])) for some in (of_pairs, neurons)]
            yield Evidence(
                f"share of {measure} that is left between architectures minus that of {NEURONS}",
                [Value(pair, of_pairs[pair] - neurons[pair]) for pair in both],
                SLIGHT,
                note=f"{measure} {number(words[0])}, {NEURONS} {number(words[1])}",
                unable=unable.get(measure, ""),
            )


def _unbiased_first(grids: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in an order in which unbiased estimates are the first variant."""
    is_other = ~grids["estimator"].eq("unbiased").fillna(False).to_numpy(bool)
    return grids.iloc[np.argsort(is_other, kind="stable")]


def _alike_in_variant(rows: pd.DataFrame, first: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `rows` that were computed in the same way as `first`."""
    columns = ["measure", *VARIANT]
    ways = first[columns].drop_duplicates()
    return rows.merge(ways, on=columns)  # nulls are equal to each other


def lower_layers_alike(rows: TaskRows) -> Iterator[Evidence]:
    """Correlate depth with the similarity of a layer to all layers of another architecture."""
    grids = _of_states(rows.grids())
    grids = grids[~grids["measure"].isin(OF_NEURONS)]
    for measure, of_measure in by_measure(grids[_different(rows, grids, "architecture")]):
        values = []
        for pair, directions in unordered(of_measure):
            trends = []
            for table in map(layer_table, directions):
                for one in (table, table.T):
                    trends.append(depth_trend(one.index, one.mean(axis=1).to_numpy()))
            values.append(Value(pair, float(np.mean(trends))))
        yield Evidence(
            f"Spearman's correlation of depth and {measure} to all layers of another architecture",
            values,
            -TREND,
            BELOW,
            note=f"{len(values)} pair{'s' * (len(values) > 1)} of models",
            signs=True,
        )


def _of_states(grids: pd.DataFrame) -> pd.DataFrame:
    return grids[grids["kind"].fillna("") != ATTENTION]


def bottom_costs_less(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the metric with frozen bottom layers and with as many frozen top layers, by seed."""
    table = rows.metrics(FREEZING).pivot(index="seed_x", columns="label_x", values="value")
    ways: dict[int, set[str]] = defaultdict(set)
    for name in table:
        frozen = re.fullmatch(r"(bottom|top):(\d+)", str(name))
        if frozen:
            ways[int(frozen[2])].add(frozen[1])
    for count in sorted(ways):
        if ways[count] == {"bottom", "top"}:
            gain = (table[f"bottom:{count}"] - table[f"top:{count}"]).dropna()
            base = str(rows.frame["base_x"].iloc[0])
            seeds = {f"{base} seed {seed}": value for seed, value in gain.items()}
            rows.who |= dict.fromkeys(seeds, Who(base, base, rows.task))
            values = [value_of(seed, value) for seed, value in seeds.items()]
            quantity = f"metric with bottom:{count} minus with top:{count}"
            yield Evidence(quantity, values, rows.options.tolerance)
