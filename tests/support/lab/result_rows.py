"""Rows of results tables for tests of figures: grids, joint grids, curves and triangles."""

import json
from itertools import product
from statistics import NormalDist

import numpy as np

from simlab.results.results import (
    BASELINE,
    FT,
    GRID,
    JOINT,
    MAJORITY,
    ORIG,
    SKIPPING,
    TRUNCATION,
    ResultRow,
    Side,
    pack_draws,
)

LAYERS = 4
STEPS = (0, 1, 10, 100, 1000, 5000)
SETTLED = (1, 10, 100, 1000)  # the step from which on each layer is as it is in the end
METRIC = {"measure": "accuracy", "n": 9}
ONE_BASE = {"base_x": "minilm", "base_y": "minilm"}  # seeds of one model have one base


def grid(comparison, x, y, seed=0, seeds=(None, None), task="rt", measure="cka", **extra):
    """Return the rows of a grid of two models; `seed` draws its values."""
    draw = np.random.default_rng(seed)
    common = {"kind": "cls", "n": 9, **extra}
    if measure == "cka":
        common = {"estimator": "biased", "kernel": "linear", **common}
    return [
        ResultRow(
            experiment=GRID,
            comparison=comparison,
            measure=measure,
            label_x=x,
            label_y=y,
            seed_x=seeds[0],
            seed_y=seeds[1],
            layer_x=i,
            layer_y=j,
            value=draw.uniform(),
            task=task,
            **common,
        )
        for i, j in product(range(LAYERS), repeat=2)
    ]


def tuned(seed, draw=None, task="rt", measure="cka", **extra):
    """Return the rows of a grid of a fine-tuned model and its base; `draw` is by default `seed`."""
    stages = {"base_x": "bert", "base_y": "bert", "stage_x": FT, "stage_y": ORIG}
    models = (f"FT[{seed}]", "BASE", seed if draw is None else draw, (seed, None))
    return grid("FT-BASE", *models, task, measure, **stages, **extra)


def joint_grid(models, comparison="all", measure="svcca", layers=LAYERS, seed=0, **extra):
    """Return the rows of a joint grid."""
    draw = np.random.default_rng(seed)
    places = list(product(models, range(layers)))
    values = draw.uniform(0.4, 1.0, (len(places), len(places)))
    return [
        ResultRow(
            experiment=JOINT,
            comparison=comparison,
            measure=measure,
            kind="word-last",
            label_x=x,
            layer_x=i,
            label_y=y,
            layer_y=j,
            value=values[row, column],
            n=9,
            task="rt",
            **extra,
        )
        for row, (x, i) in enumerate(places)
        for column, (y, j) in enumerate(places)
    ]


def curve(model, seed=None, start=0.5, mode=TRUNCATION, task="rt", base="minilm", **extra):
    """Return the rows of a truncated model, whose metric rises by a tenth with every layer."""
    return [
        ResultRow(
            experiment=mode,
            **Side(model, seed, base, FT).columns(),
            layer_x=layer,
            value=start + layer / 10,
            task=task,
            **{**METRIC, **extra},
        )
        for layer in range(LAYERS)
    ]


def majority(task="rt", value=0.52):
    """Return the row of the majority class."""
    return ResultRow(experiment=BASELINE, label_x=MAJORITY, value=value, task=task, **METRIC)


def triangle(model, seed=None, start=0.9, task="rt", base="minilm"):
    """Return the rows of a model without every span of layers."""
    spans = [(0, 0), *((i, j) for i in range(LAYERS) for j in range(i + 1, LAYERS + 1))]
    return [
        ResultRow(
            experiment=SKIPPING,
            **Side(model, seed, base, FT).columns(),
            layer_x=i,
            layer_y=j,
            value=start - (j - i) / 10,
            task=task,
            **METRIC,
        )
        for i, j in spans
    ]


def steps_of_training(seeds=(0, 1, 2), task="rt", **extra):
    """Return the rows of grids of every step of a training with the last one."""
    last = STEPS[-1]
    rows = []
    for seed, (place, step) in product(seeds, enumerate(STEPS[:-1])):
        draw = np.random.default_rng([seed, step])
        sides = [Side(f"mini[{seed}] @ {at}", seed, "mini", ORIG, at) for at in (step, last)]
        rows += [
            ResultRow(
                experiment=GRID,
                comparison="ORIG-last step",
                measure="cka",
                **sides[0].columns(),
                **sides[1].columns("y"),
                layer_x=i,
                layer_y=j,
                value=(0.95 if step >= SETTLED[i] else 0.4 + place / 20)
                - abs(i - j) / 10
                + draw.normal(0, 0.005),
                task=task,
                **{"kind": "cls", "estimator": "biased", "kernel": "linear", "n": 500, **extra},
            )
            for i, j in product(range(LAYERS), repeat=2)
        ]
    return rows


def with_draws(frame, draws, examples=100):
    """Return a table whose values have these draws over examples, [draws, rows]."""
    half = NormalDist().inv_cdf(0.975) * np.std(draws, axis=0, ddof=1)
    return frame.assign(
        low=frame["value"] - half,
        high=frame["value"] + half,
        draws=[pack_draws(one, examples) for one in draws.T],
        resampling=json.dumps({"examples": len(draws), "seed": 0}),
    )
