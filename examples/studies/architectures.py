"""Tables and a figure of two architectures, from the rows of `sweeps.py two-architectures`.

A similarity belongs to two models, so that its intervals come from the jackknife over models, as in
`simcore claims`; a localization score or an accuracy belongs to one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.evidence.verdicts import Units
from simlab.results.results import BASELINE, FT, JOINT, LOCALIZATION, ORIG, joint_table

if TYPE_CHECKING:
    import pandas as pd

BERT, GPT2 = ARCHITECTURES = ("bert", "gpt2")
PRETRAINED = ORIG.upper()  # the joint grids of all models before fine-tuning
SAME, DIFFERENT = "same architecture", "different architectures"
LESS = f"{SAME} minus {DIFFERENT}"
SEEDS = {BERT: "two BERTs", GPT2: "two GPT-2s"}
GROUPS = (*SEEDS.values(), DIFFERENT)
COLUMNS = ("what", "measure", "kind", "layer_x", "layer_y", "mean", "low", "high", "models")
DIGITS = 4
Pairs = dict[tuple[str, ...], float]  # of models
Cells = dict[tuple[str, int, int], Pairs]
# Of the figure.
SHOWN = {
    "cka": "CKA (unbiased)",
    "svcca": "SVCCA",
    "pwcca": "PWCCA",
    "neuronsim": "neuronsim",
    "attention-js": "attention (JS)",
}


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the means over models, with intervals: similarities, changes and localization."""
    import pandas as pd

    rows = [*_similarities(frame), *_changes(frame), *_localization(frame)]
    return pd.DataFrame(rows, columns=list(COLUMNS)).round(DIGITS)


def trained(models: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the held-out loss of each model, and its accuracy after fine-tuning."""
    import pandas as pd

    scores = frame[(frame["experiment"] == BASELINE) & (frame["measure"] == "accuracy")]
    scores = scores[scores["stage_x"] == FT]
    accuracy = {
        (base, seed): value
        for base, seed, value in zip(
            scores["base_x"], scores["seed_x"], scores["value"], strict=True
        )
    }
    rows = []
    for file in sorted(models.glob("*/pretraining.json")):
        measured = json.loads(file.read_text())
        model = BERT if measured["recipe"]["objective"] == "masked" else GPT2
        seed, loss, words = (measured["recipe"]["seed"], measured["loss"], measured["unigram_loss"])
        tuned = accuracy.get((model, seed))
        rows.append((model, seed, measured["steps"], loss, words, words - loss, tuned))
    names = ["model", "seed", "steps", "heldout_loss", "unigram_loss", "below", "tuned_accuracy"]
    return pd.DataFrame(rows, columns=names).sort_values(["model", "seed"]).round(DIGITS)


def _similarities(frame: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yield the similarities of layers between seeds and between architectures."""
    joint = frame[(frame["experiment"] == JOINT) & (frame["comparison"] == PRETRAINED)]
    for (measure, kind), rows in joint.groupby(["measure", "kind"], sort=False):
        cells = _cells(rows)
        for (what, x, y), values in cells.items():
            yield _row(what, measure, kind, x, y, values)
        for layer in sorted({x for _, x, y in cells if x == y}):
            same = cells[SEEDS[BERT], layer, layer] | cells[SEEDS[GPT2], layer, layer]
            other = cells[DIFFERENT, layer, layer]
            yield _row(LESS, measure, kind, layer, layer, same, other)


def _cells(rows: pd.DataFrame) -> Cells:
    """Return the values of pairs of models by what they compare, and by the layers of both.

    Both directions of an asymmetric measure are averaged, and both orders of two seeds.
    """
    layers, values = joint_table(rows)
    values = (values + values.T) / 2
    place = {(layer.model, layer.number): at for at, layer in enumerate(layers)}
    models = list(dict.fromkeys(layer.model for layer in layers))
    numbers = sorted({layer.number for layer in layers})
    cells: Cells = {}
    for a, b in combinations(sorted(models), 2):  # a BERT is first in its pairs with GPT-2s
        alike = _architecture(a) == _architecture(b)
        what = SEEDS[_architecture(a)] if alike else DIFFERENT
        pairs = combinations_with_replacement(numbers, 2) if alike else _square(numbers)
        for x, y in pairs:
            value = values[place[a, x], place[b, y]]
            if alike:
                value = (value + values[place[a, y], place[b, x]]) / 2
            cells.setdefault((what, x, y), {})[a, b] = float(value)
    return cells


def _square(numbers: Sequence[int]) -> list[tuple[int, int]]:
    return [(x, y) for x in numbers for y in numbers]


def _architecture(label: str) -> str:
    return next(name for name in ARCHITECTURES if label.startswith(f"{name}-"))


def _changes(frame: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yield the similarity of each layer with itself before fine-tuning."""
    rows = frame[(frame["experiment"] == JOINT) & (frame["seed_x"] == frame["seed_y"])]
    rows = rows[(rows["stage_x"] == FT) & (rows["stage_y"] == ORIG)]
    rows = rows[(rows["base_x"] == rows["base_y"]) & (rows["layer_x"] == rows["layer_y"])]
    by = ["base_x", "measure", "kind", "layer_x"]
    for (base, measure, kind, layer), some in rows.groupby(by, sort=False):
        values = _of_seeds(some)
        yield _row(f"{base} after and before fine-tuning", measure, kind, layer, layer, values)


def _localization(frame: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yield the scores in each joint grid: all models, or one architecture before and after."""
    rows = frame[frame["experiment"] == LOCALIZATION]
    by = ["comparison", "base_x", "stage_x", "kind", "layer_x"]
    for (grid, base, stage, kind, layer), some in rows.groupby(by, sort=False):
        what = f"{base} {stage} in the grid {grid}"
        yield _row(what, LOCALIZATION, kind, layer, None, _of_seeds(some))


def _of_seeds(rows: pd.DataFrame) -> Pairs:
    return {(str(seed),): v for seed, v in zip(rows["seed_x"], rows["value"], strict=True)}


def _row(
    what: str,
    measure: str,
    kind: str,
    x: int,
    y: int | None,
    values: Pairs,
    minus: Pairs | None = None,
) -> tuple[Any, ...]:
    found = Units(values, minus).interval()
    return what, measure, kind, x, y, found.estimate, found.low, found.high, found.units


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw the similarity at equal depth of seeds and of architectures, a panel per measure."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from simlab.figures.style import PNG_DPI, STYLE, look

    shown = [name for name in SHOWN if (table["measure"] == name).any()]
    equal = table[table["layer_x"] == table["layer_y"]]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(2.1 * len(shown), 2.6), layout="constrained")
        axes = figure.subplots(1, len(shown), sharey=True)
        for measure, axis in zip(shown, axes, strict=True):
            for index, what in enumerate(GROUPS):
                rows = equal[(equal["measure"] == measure) & (equal["what"] == what)]
                style, places = look(index), rows["layer_x"] + 0.1 * (index - 1)
                line = {"color": style["color"], "marker": style["marker"], "markersize": 3.5}
                axis.plot(places, rows["mean"], label=what, linewidth=1.0, **line)
                axis.vlines(places, rows["low"], rows["high"], color=style["color"], linewidth=1.0)
            axis.set(title=SHOWN[measure], xlabel="layer", ylim=(0, 1))
            axis.set_xticks(sorted(equal.loc[equal["measure"] == measure, "layer_x"].unique()))
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel("similarity at equal depth")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
        figure.savefig(path, dpi=PNG_DPI)
