"""Rows as those of `examples/sweeps/phang2021.toml`: 12 tasks, three models, two fine-tunings each.

With an effect the rows are as the paper says, and without any, no claim of the paper is true.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np

from simlab.store.results import ORIG, TRUNCATIONS
from support.lab.claimrows import LAYERS, band, curve, grid, planted, skipping

TASKS = 12
MODELS = ("roberta", "albert", "electra")


def page(draw, effect):
    """Return the rows of every fine-tuned model; `effect` is 0 or 1."""
    return [
        replace(one, task=f"task {task}", base_x=base, base_y=base if one.label_y else None)
        for task in range(TASKS)
        for model in MODELS
        for base in [f"hub/{model}-base"]
        for seed in (1, 2)
        for one in _rows(draw, effect, model, f"{model}-FT[{seed}]")
    ]


def _rows(draw, effect, model, label):
    return [
        *_grids(draw, effect, model, label),
        *_truncation(draw, effect, model, label),
        *skipping(_losses(draw, effect), label),
    ]


def _grids(draw, effect, model, label):
    """Return blocks, but not of ELECTRA; and a change by fine-tuning that grows with depth."""
    values = planted(4) if effect and model != "electra" else band()
    noise = draw.normal(0, 0.02, values.shape)
    change = np.cumsum(draw.normal(effect, 1.0, LAYERS))
    to_orig = grid("FT-ORIG", np.diag(0.9 - 0.01 * change), label, f"{model}-ORIG", first=1)
    return [
        *grid("FT-FT", values + (noise + noise.T) / 2, label, label),
        *(replace(one, stage_y=ORIG) for one in to_orig if one.layer_x == one.layer_y),
    ]


def _truncation(draw, effect, model, label):
    """Return the metric by layer: three top layers can go, of ELECTRA none, of ALBERT five."""
    spare = {"electra": 0, "roberta": 3, "albert": 5}[model] if effect else 1
    cost = np.where(np.arange(LAYERS + 1) >= LAYERS - spare, 0.0, 0.1)
    level = draw.normal(0.8, 0.03)
    rows = []
    for mode, lower in (("untuned", 0), ("tuned", 0), ("tuned-orig", 0.1 * effect)):
        noise = draw.normal(0, 0.003, LAYERS + 1)
        rows += curve(TRUNCATIONS[mode], level - cost - lower + noise, label)
    return rows


def _losses(draw, effect):
    """Return the loss without each span: the first layer is dear, and later spans are cheap."""
    return {
        (i, j): 0.1 + effect * (0.1 * (i == 0) - 0.005 * i) + draw.normal(0, 0.01)
        for i, j in combinations(range(LAYERS + 1), 2)
    }
