"""Claims of Phang et al. 2021: blocks of layers, layers that can go, layers that cannot."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from simlab.evidence.claim import Evidence
from simlab.evidence.intervals import Value, interval, value_of
from simlab.evidence.rows import TaskRows, depth_trend
from simlab.evidence.wording import TREND, number, span
from simlab.store.results import SKIPPING, TRUNCATIONS

if TYPE_CHECKING:
    import pandas as pd

TOP_SHARE = 0.25  # of the layers of a model


def can_go(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the metric without the top quarter of the layers with the whole model's.

    The number of layers is fixed beforehand: the best of several depths would look good by chance.
    """
    for mode in ("untuned", "tuned"):
        gains, depths = gains_without_top(rows, mode)
        if not gains:
            continue
        counts = [str(math.ceil(TOP_SHARE * depth)) for depth in depths]
        yield Evidence(
            f"metric without the top quarter of the layers minus with all, {mode} head",
            [value_of(model, gain) for model, gain in gains.items()],
            -rows.options.tolerance,
            note=f"{' or '.join(counts)} of {' or '.join(map(str, depths))} layers",
        )


def gains_without_top(rows: TaskRows, mode: str) -> tuple[dict[str, float], list[int]]:
    """Return the change of each model's metric without its top quarter, and the models' depths."""
    whole = {model: curve.iloc[-1] for model, curve in truncation_curves(rows, "untuned")}
    gains, depths = {}, set()
    for model, curve in truncation_curves(rows, mode):
        if model in whole:
            last = int(curve.index[-1])
            depths.add(last)
            layer = last - math.ceil(TOP_SHARE * last)
            gains[model] = float(curve.get(layer, math.nan) - whole[model])
    return gains, sorted(depths)


def truncation_curves(rows: TaskRows, mode: str) -> Iterator[tuple[str, pd.Series]]:
    """Yield each model, and its metric by layer, up to the last layer of this model."""
    for model, mine in rows.metrics(TRUNCATIONS[mode]).groupby("x", sort=False):
        yield str(model), mine.set_index("layer_x")["value"].sort_index()


def tuned_against_orig(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the layers of the fine-tuned and of the pretrained model, with heads tuned alike."""
    tuned, orig = (rows.curves(TRUNCATIONS[mode]) for mode in ("tuned", "tuned-orig"))
    gain = (tuned - orig).dropna(axis="columns", how="all")
    gain = gain[gain.index > 0]
    if gain.empty:
        return
    layers = []
    for layer, values in gain.iterrows():
        gains = interval([value_of(str(model), value) for model, value in values.items()])
        layers.append(f"{layer}: {span(gains)}")
    yield Evidence(
        "tuned minus tuned-orig, mean over layers",
        [value_of(str(model), values.mean()) for model, values in gain.items()],
        rows.options.tolerance,
        note="by layer " + "; ".join(layers),
    )


def first_layer(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the loss without the first layer with the mean loss without another layer."""
    values, layers = [], []
    for model, losses in _losses(rows):
        single = {j: loss for (i, j), loss in losses.items() if j == i + 1}
        others = [loss for layer, loss in single.items() if layer > 1]
        if 1 in single and others:
            values.append(value_of(model, single[1] - float(np.mean(others))))
            layers.append(max(single, key=lambda layer: single[layer]))
    if values:
        count = layers.count(1)
        yield Evidence(
            "loss without layer 1 minus the mean loss without another layer",
            values,
            rows.options.tolerance,
            note=f"layer 1 costs most in {count} of {len(layers)} models",
        )


def later_spans(rows: TaskRows) -> Iterator[Evidence]:
    """Correlate the loss without a span with the place where the span starts."""
    values: list[Value] = []
    means: dict[tuple[int, int], list[float]] = {}
    for model, losses in _losses(rows):
        trends = []
        for starts, of_length in _by_length(losses).values():
            trends.append(-depth_trend(starts, of_length))
        mean = float(np.mean([t for t in trends if np.isfinite(t)] or [np.nan]))
        values.append(value_of(model, mean))
        for cut, loss in losses.items():
            means.setdefault(cut, []).append(loss)
    if values:
        yield Evidence(
            "Spearman's correlation of the start of a span and the metric without it",
            values,
            TREND,
            note=_cheapest({cut: float(np.mean(of_cut)) for cut, of_cut in means.items()}),
            signs=True,
        )


def _losses(rows: TaskRows) -> Iterator[tuple[str, dict[tuple[int, int], float]]]:
    """Yield each model, and its loss without each span [i, j) (layers i + 1 to j)."""
    for model, mine in rows.metrics(SKIPPING).groupby("x", sort=False):
        spans = zip(mine["layer_x"].astype(int), mine["layer_y"].astype(int), strict=True)
        values = dict(zip(spans, mine["value"], strict=True))
        whole = values.pop((0, 0), np.nan)
        yield str(model), {cut: whole - value for cut, value in values.items()}


def _by_length(losses: dict[tuple[int, int], float]) -> dict[int, tuple[list[int], list[float]]]:
    """Return, for each length of a span, the starts of the spans and the losses without them."""
    by_length: dict[int, tuple[list[int], list[float]]] = {}
    for (i, j), loss in sorted(losses.items()):
        starts, values = by_length.setdefault(j - i, ([], []))
        starts.append(i)
        values.append(loss)
    return by_length


def _cheapest(losses: dict[tuple[int, int], float]) -> str:
    """Name the span of each length that costs least in the mean over models, up to half of all."""
    most = max(1, max(j for _, j in losses) // 2)
    words = []
    for length in sorted({j - i for i, j in losses if j - i <= most}):
        (i, j), loss = min(
            ((cut, loss) for cut, loss in losses.items() if cut[1] - cut[0] == length),
            key=lambda item: item[1],
        )
        words.append(f"{i + 1 if length == 1 else f'{i + 1} to {j}'} ({number(loss)})")
    return "the spans that cost least: layers " + ", ".join(words)
