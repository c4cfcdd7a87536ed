"""Constructed results for every claim: it holds, it fails, or it cannot be decided.

Each builder takes the case and the number of models, and returns rows of the results table. For
three models or more, every quantity of the claim has the verdict of the case.
"""

import json
from dataclasses import replace
from itertools import combinations, product

import numpy as np

from simlab.evidence.rows import ClaimOptions
from simlab.evidence.verdicts import FAILS, HOLDS, UNDECIDED
from simlab.results.results import (
    ALIGNMENT,
    FREEZING,
    FT,
    GRID,
    HELDOUT,
    LOCALIZATION,
    MSE,
    ORIG,
    RANDOM,
    RELATIVE,
    SKIPPING,
    TRAIN,
    TRUNCATIONS,
    ResultRow,
)

TASK, LAYERS = "rt", 8
# Families that no label but those of `families_alike` is of.
OPTIONS = ClaimOptions(families={letter: f"{letter}-*" for letter in "ABCDEFGHI"})
_LEANING = {HOLDS: (0.9, 1.0, 1.1), FAILS: (-0.9, -1.0, -1.1), UNDECIDED: (-1.0, 0.1, 1.0)}


def leaning(case, number):
    """Return a value for each model: all near 1, all near -1, or some of each."""
    return _LEANING[case][number % 3]


def row(experiment, value, measure="accuracy", model="FT[1]", label_y=None, **more):
    """Return a row; the labels of models say their stages."""
    given = {"n": 100, "task": TASK, "stage_x": stage(model), "stage_y": stage(label_y)} | more
    named = {"label_x": model, "label_y": label_y, "measure": measure}
    return ResultRow(experiment=experiment, value=float(value), **named, **given)


def stage(label):
    """Return the stage of a model from the word in its label."""
    words = {"FT": FT, "ORIG": ORIG, "RANDOM": RANDOM}
    return next((words[word] for word in words if word in (label or "")), None)


def grid(comparison, values, x, y, measure="cka", first=0, **more):
    """Return the rows of a grid; `first` is the number of the first layer."""
    more = {"comparison": comparison, "label_y": y, **more}
    return [
        row(GRID, value, measure, x, layer_x=first + i, layer_y=first + j, **more)
        for (i, j), value in np.ndenumerate(values)
    ]


def curve(experiment, values, model, measure="accuracy", first=0, **more):
    """Return a row for each layer."""
    return [
        row(experiment, value, measure, model, layer_x=first + i, **more)
        for i, value in enumerate(values)
    ]


def pretrained_apart(rows):
    """Give each fine-tuned model FT[k] a pretrained model of its own, base k."""

    def base(label, other):
        number = next((n for n in (label, other) if n and n.startswith("FT[")), None)
        own = label if label.startswith("FT[") else number
        return f"base {own[3:-1]}" if own else label

    found = []
    for one in rows:
        x = base(one.label_x, one.label_y)
        y = one.label_y and base(one.label_y, one.label_x)
        names = {"label_x": one.label_x if one.stage_x == FT else x}
        names["label_y"] = one.label_y if one.stage_y == FT else y
        found.append(replace(one, base_x=x, base_y=y, **names))
    return found


def before_tuning(rows):
    """Return rows of as many different pretrained models."""
    stages = {"stage_x": ORIG, "stage_y": ORIG}
    return [replace(one, **stages) for one in pretrained_apart(rows)]


def labels(models):
    return [f"FT[{number + 1}]" for number in range(models)]


def planted(size, layers=9, within=0.9, between=0.2):
    """Return similarities of two blocks, of which the first has `size` layers."""
    block = np.arange(layers) >= size
    return np.where(np.equal.outer(block, block), within, between)


def band(layers=9):
    """Return similarities that depend on distance alone."""
    return 1 - np.abs(np.subtract.outer(np.arange(layers), np.arange(layers))) / layers


def block_diagonal(case, models=3):
    blocks, none = planted(4), band()
    values = {HOLDS: (blocks, blocks), FAILS: (none, none), UNDECIDED: (blocks, none)}[case]
    return [
        found
        for number, label in enumerate(labels(models))
        for found in grid("FT-FT", values[number % 2], label, label)
    ]


def blocks_agree(case, models=3):
    """Return own grids with equal or unequal blocks, and grids between models with such blocks."""
    layers = 15
    sizes = {HOLDS: (7, 7, 7), FAILS: (1, 7, 14), UNDECIDED: (7, 7, 14)}[case]
    splits = {label: sizes[number % 3] for number, label in enumerate(labels(models))}
    rows = []
    for name, size in splits.items():
        rows += grid("FT-FT", planted(size, layers), name, name)
    for number, (one, other) in enumerate(combinations(splits, 2)):
        sides = [np.arange(layers) >= splits[name] for name in (one, other)]
        same = np.equal.outer(*sides)
        # The score grows with the number of layers that are in different blocks.
        strength = 3.0 / max(6, np.not_equal(*sides).sum()) * leaning(case, number)
        rows += grid("FT[1]-FT[2]", 0.5 * band(layers) + strength * same, one, other)
    return rows


def top_layers_can_go(case, models=3):
    spare = {HOLDS: (3, 3, 2), FAILS: (0, 0, 0), UNDECIDED: (0, 3, 3)}[case]
    rows = []
    for number, label in enumerate(labels(models)):
        enough = np.arange(LAYERS + 1) >= LAYERS - spare[number % 3]
        for mode in ("untuned", "tuned"):
            rows += curve(TRUNCATIONS[mode], np.where(enough, 0.8, 0.6), label)
    return rows


def tuned_beats_orig(case, models=3):
    rows = []
    for number, label in enumerate(labels(models)):
        orig = np.linspace(0.5, 0.7, LAYERS + 1)
        rows += curve(TRUNCATIONS["tuned-orig"], orig, label)
        rows += curve(TRUNCATIONS["tuned"], orig + 0.1 * leaning(case, number), label)
    return rows


def skipping(losses, label):
    """Return the metric of a model, and without each span that has a loss."""
    rows = [row(SKIPPING, 0.8, model=label, layer_x=0, layer_y=0)]
    return rows + [
        row(SKIPPING, 0.8 - loss, model=label, layer_x=i, layer_y=j)
        for (i, j), loss in losses.items()
    ]


def first_layer_matters(case, models=3):
    rows = []
    for number, label in enumerate(labels(models)):
        losses = {(i, i + 1): 0.2 for i in range(LAYERS)}
        losses[0, 1] += 0.1 * leaning(case, number)
        rows += skipping(losses, label)
    return rows


def later_spans_cost_less(case, models=3):
    rows = []
    for number, label in enumerate(labels(models)):
        fall = np.sign(leaning(case, number) - 0.5)
        spans = combinations(range(LAYERS + 1), 2)
        rows += skipping({(i, j): 0.3 - 0.02 * fall * i for i, j in spans}, label)
    return rows


def top_layers_change(case, models=3):
    rows, depth = [], np.arange(1, LAYERS + 1)
    for number, label in enumerate(labels(models)):
        change = 0.5 + 0.05 * np.sign(leaning(case, number) - 0.5) * depth
        rows += grid("FT-ORIG", np.diag(1 - change), label, "ORIG", first=1)
        rows += errors([change], "ORIG", label, RELATIVE, methods=["linear"])
    return pretrained_apart(rows)


def localization(case, models, label, top=0.0):
    """Return localization scores that rise or fall with depth, and `top` more in the last two."""
    rows = []
    for number in range(models):
        slope = np.sign(leaning(case, number) - 0.5)
        scores = 0.05 * slope * np.arange(LAYERS + 1)
        scores[-2:] += top * leaning(case, number)
        name = label.format(number + 1)
        rows += curve(LOCALIZATION, scores, name, LOCALIZATION, kind="word-last")
    return rows


def higher_layers_localized(case, models=3):
    tuned = pretrained_apart(localization(case, models, "FT[{}]"))
    return [*localization(case, models, "GPT-{}"), *tuned]


def tuning_delocalizes(case, models=3):
    rows = []
    for number, label in enumerate(labels(models)):
        scores = np.zeros(LAYERS + 1)
        rows += [
            replace(one, label_x=f"ORIG {label}", base_x=label, stage_x=ORIG)
            for one in curve(LOCALIZATION, scores, label, LOCALIZATION, kind="word-last")
        ]
        scores[-2:] = -0.1 * leaning(case, number)
        tuned = curve(LOCALIZATION, scores, label, LOCALIZATION, kind="word-last")
        rows += [replace(one, base_x=label) for one in tuned]
    return rows


def equal_depth(case, models=3):
    """Return grids between models of 4 and 8 layers, for a symmetric and another measure."""
    rows = []
    for number, (one, other) in enumerate(combinations(labels(models), 2)):
        near = np.isclose(np.arange(1, 5)[:, None] / 4, np.arange(1, 9) / 8)
        values = 0.5 + 0.2 * leaning(case, number) * near
        rows += grid("pair", values, one, other, first=1)
        rows += grid("pair", values, one, other, "pwcca", first=1)
        rows += grid("pair", values.T, other, one, "pwcca", first=1)
    return before_tuning(rows)


def families_alike(case, families=3):
    """Return a joint grid of families of two models each."""
    names = [f"{family}-{number}" for family in [*OPTIONS.families][:families] for number in (1, 2)]
    rows = []
    for one, other in product(names, names):
        more = leaning(case, ord(one[0]) - ord("A")) if one[0] == other[0] else 0
        rows += grid("joint", np.full((2, 2), 0.5 + 0.2 * more), one, other, first=1)
    return rows  # labels without a base are pretrained models of their own


def freeze_bottom(case, models=3):
    rows = []
    for number in range(models):
        for count, seed in product((2, 4), [number + 1]):
            top = 0.7 - 0.01 * count
            bottom = top + 0.1 * leaning(case, number)
            values = {f"top:{count}": top, f"bottom:{count}": bottom}
            rows += [row(FREEZING, v, model=way, seed_x=seed) for way, v in values.items()]
    return rows


def errors(curves, x, y, measure, *, methods, kind="cls", parts=(TRAIN, HELDOUT)):
    """Return errors of maps from x to y at layers 1, 2, ..., a curve for each method."""
    return [
        found
        for (method, values), part in product(zip(methods, curves, strict=True), parts)
        for layer, value in enumerate(values, 1)
        for found in [
            row(
                ALIGNMENT,
                value,
                measure,
                x,
                label_y=y,
                layer_x=layer,
                layer_y=layer,
                kind=kind,
                options=json.dumps({"method": method, "rows": part}),
                comparison="seeds",
            )
        ]
    ]


def pairs_of(models):
    """Yield a number for each ordered pair of models, equal in both directions, and the pair."""
    for number, (one, other) in enumerate(combinations(labels(models), 2)):
        yield number, one, other
        yield number, other, one


def inn_beats_linear(case, models=3):
    rows = []
    for number, one, other in pairs_of(models):
        linear = np.linspace(0.3, 0.4, LAYERS)
        curves = [linear - 0.1 * leaning(case, number), linear]
        for measure in (MSE, RELATIVE):
            rows += errors(curves, one, other, measure, methods=["inn", "linear"])
    return pretrained_apart(rows)


def deeper_layers_vary(case, models=3):
    rows = []
    for number, one, other in pairs_of(models):
        rise = np.sign(leaning(case, number) - 0.5)
        values = 0.5 + 0.05 * rise * np.arange(LAYERS)
        for measure in (MSE, RELATIVE):
            rows += errors([values, values], one, other, measure, methods=["inn", "linear"])
    return pretrained_apart(rows)


def attention_varies_less(case, models=3):
    rows = []
    for number, one, other in pairs_of(models):
        states = np.linspace(0.3, 0.4, LAYERS)
        for measure, (kind, shift) in product(
            (MSE, RELATIVE), (("cls", 0), ("attention", -0.1 * leaning(case, number)))
        ):
            curves = [states + shift] * 2
            rows += errors(curves, one, other, measure, methods=["inn", "linear"], kind=kind)
    return pretrained_apart(rows)


BUILDERS = {
    "block-diagonal": block_diagonal,
    "blocks-agree": blocks_agree,
    "top-layers-can-go": top_layers_can_go,
    "tuned-beats-orig": tuned_beats_orig,
    "first-layer-matters": first_layer_matters,
    "later-spans-cost-less": later_spans_cost_less,
    "top-layers-change": top_layers_change,
    "higher-layers-localized": higher_layers_localized,
    "tuning-delocalizes": tuning_delocalizes,
    "equal-depth": equal_depth,
    "families-alike": families_alike,
    "freeze-bottom": freeze_bottom,
    "inn-beats-linear": inn_beats_linear,
    "deeper-layers-vary": deeper_layers_vary,
    "attention-varies-less": attention_varies_less,
}
