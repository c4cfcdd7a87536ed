"""Results rows of drawn models for `verdict_errors.py`, which the rules of claims judge.

Models differ from each other, pairs of models too, and each row has noise of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np

from simlab.evidence.table import CLAIMS
from simlab.representations.kinds import ATTENTION
from simlab.results.results import (
    ALIGNMENT,
    COMPLEXITY,
    FREEZING,
    FT,
    GRID,
    HELDOUT,
    INJECTION,
    JOINT,
    LOCALIZATION,
    MSE,
    NUCLEAR,
    ORIG,
    TRUNCATIONS,
    ResultRow,
)

LAYERS = 4
MOST_PAIRS = 10  # of more pairs, as many as there are models are drawn
Rows = list[ResultRow]
Build = Callable[[np.random.Generator, list[str], float], Rows]
BY_NAME = {claim.name: claim for claim in CLAIMS}


def row(experiment: str, value: float, x: str, y: str | None = None, **more) -> ResultRow:
    """Return a row about model x, or about x and y, fine-tuned unless `more` names a stage."""
    stage = more.pop("stage", FT)
    names = {"label_x": f"{x}-FT" if stage == FT else x, "base_x": x, "stage_x": stage}
    if y:
        names |= {"label_y": f"{y}-FT" if stage == FT else y, "base_y": y, "stage_y": stage}
    more = {"measure": "accuracy", "n": 100, "task": "drawn"} | names | more
    return ResultRow(experiment=experiment, value=float(value), **more)


def _pairs(models: list[str]) -> list[tuple[str, str]]:
    """Return all pairs of models; of more than `MOST_PAIRS`, each model with the next."""
    pairs = list(combinations(models, 2))
    nexts = models[1:] + models[:1]
    return pairs if len(pairs) <= MOST_PAIRS else list(zip(models, nexts, strict=True))


def _shared(
    draw: np.random.Generator, models: list[str], noise: float, pairs: Callable = _pairs
) -> Iterator[tuple[str, str, float]]:
    """Yield each pair, and what both models and the pair add to its values."""
    own = dict(zip(models, draw.normal(0, noise, len(models)), strict=True))
    for x, y in pairs(models):
        yield x, y, own[x] + own[y] + draw.normal(0, noise)


def _tuned_beats_orig(draw, models, effect):
    for model in models:
        orig = draw.normal(0.6, 0.05) + 0.03 * np.arange(LAYERS + 1)
        tuned = orig + draw.normal(0.1 * effect, 0.03) + draw.normal(0, 0.01, LAYERS + 1)
        for mode, curve in (("tuned", tuned), ("tuned-orig", orig)):
            for layer, value in enumerate(curve):
                yield row(TRUNCATIONS[mode], value, model, layer_x=layer, base_x=model[:-2])


def _top_layers_can_go(draw, models, effect):
    for model in models:
        curve = np.full(LAYERS + 1, draw.normal(0.8, 0.05))
        curve[:-1] += draw.normal(-0.05 * (1 - effect), 0.004)
        for layer, value in enumerate(curve):
            yield row(TRUNCATIONS["untuned"], value, model, layer_x=layer, base_x=model[:-2])


def _electra_needs_top(draw, models, effect):
    """Yield curves of two models that were fine-tuned on each task; the tasks are the units."""
    for task in models:
        for base, loss in (("electra", 0.1 * effect), ("roberta", 0.0)):
            curve = np.full(LAYERS + 1, draw.normal(0.8, 0.05))
            curve[:-1] -= draw.normal(loss, 0.02)
            for layer, value in enumerate(curve):
                names = {"label_x": f"{base}-{task}-FT", "layer_x": layer}
                yield row(TRUNCATIONS["untuned"], value, base, **names)


def _tuning_delocalizes(draw, models, effect):
    for model in models:
        scores = draw.normal(0, 0.05, LAYERS)
        changed = scores + draw.normal(0, 0.01, LAYERS)
        changed[-1] += draw.normal(-0.1 * effect, 0.03)
        for stage, curve in ((ORIG, scores), (FT, changed)):
            for layer, value in enumerate(curve, 1):
                names = {"measure": LOCALIZATION, "kind": "word-last", "layer_x": layer}
                yield row(LOCALIZATION, value, model, stage=stage, **names)


def _freeze_bottom(draw, models, effect):
    """Yield the metric of one model by seed; the numbers of the models are the seeds."""
    for seed in models:
        top = draw.normal(0.7, 0.03)
        for way, value in (("top:2", top), ("bottom:2", top + draw.normal(0.05 * effect, 0.02))):
            yield row(FREEZING, value, "base", label_x=way, seed_x=int(seed))


def _complexity_drops(draw, models, effect):
    for model in models:
        norms = draw.uniform(5, 20) * (1 + draw.normal(0, 0.01, 2 * LAYERS))
        norms[-3:] *= 1 + draw.normal(-0.2 * effect, 0.05)
        for layer, value in enumerate(norms, 1):
            names = {"measure": NUCLEAR, "kind": "mean-all", "layer_x": layer}
            yield row(COMPLEXITY, value, model, stage=ORIG, **names)


def _equal_depth(draw, models, effect):
    """Yield grids between different models, in which near layers are more alike."""
    for x, y, shift in _shared(draw, models, 0.03):
        level = draw.normal(0.5, 0.05)
        values = level + draw.normal(0, 0.02, (LAYERS, LAYERS))
        values += (0.2 * effect + shift) * np.eye(LAYERS)
        yield from _cells(GRID, values, x, y, "cka")


def _cells(experiment, values, x, y, measure):
    for (i, j), value in np.ndenumerate(values):
        names = {"measure": measure, "layer_x": i + 1, "layer_y": j + 1, "comparison": "joint"}
        yield row(experiment, value, x, y, stage=ORIG, estimator="unbiased", **names)


def _representations(draw, models, effect):
    """Yield joint grids: CKA is left between models, `neuronsim` is not."""
    inside = {"cka": 0.8, "neuronsim": 0.5}
    for model in models:
        for measure, mean in inside.items():
            noise = draw.normal(0, 0.01, (LAYERS, LAYERS))
            yield from _cells(JOINT, mean + noise, model, model, measure)
    for x, y, shift in _shared(draw, models, 0.05):
        for measure, share in (("cka", 0.3 + 0.4 * effect + shift), ("neuronsim", 0.3)):
            noise = draw.normal(0, 0.02, (LAYERS, LAYERS))
            yield from _cells(JOINT, inside[measure] * (share + noise), x, y, measure)


def _maps(errors, x, y, method, stage=FT, kind="mean-all"):
    options = json.dumps({"method": method, "rows": HELDOUT})
    names = {"measure": MSE, "comparison": "seeds", "options": options, "kind": kind}
    for layer, value in enumerate(errors, 1):
        yield row(ALIGNMENT, value, x, y, stage=stage, layer_x=layer, layer_y=layer, **names)


def ratio(nothing, paper, noise, sides, pairs=_pairs):
    """Return rows of errors of two sides, of which the first is a multiple of the second."""

    def build(draw, models, effect):
        for x, y, shift in _shared(draw, models, noise, pairs):
            errors = draw.uniform(0.2, 0.5) * (1 + draw.normal(0, 0.02, 2 * LAYERS))
            share = 1 + nothing + effect * (paper - nothing) + shift
            other = errors * max(share, 0.0) * (1 + draw.normal(0, 0.02, 2 * LAYERS))
            for side, values in zip(sides, (other, errors), strict=True):
                yield from _maps(values, x, y, **side)

    return build


def _inn_keeps_metric(draw, models, effect):
    for x, y, gain in _shared(draw, models, 0.05):
        other = draw.normal(0.5, 0.05)
        for method, value in (("inn", other + 0.3 * effect + gain), ("linear", other)):
            options = json.dumps({"method": method, "fit_on": "mean-all"})
            names = {"layer_x": LAYERS, "kind": "all", "options": options}
            yield row(INJECTION, value, x, y, **names)


LINEAR = {"method": "linear"}
_STAGES = ({"stage": FT}, {"stage": ORIG})
ROWS: dict[str, Build] = {
    "top-layers-can-go": _top_layers_can_go,
    "tuned-beats-orig": _tuned_beats_orig,
    "electra-needs-top-layers": _electra_needs_top,
    "tuning-delocalizes": _tuning_delocalizes,
    "equal-depth": _equal_depth,
    "representations-not-neurons": _representations,
    "freeze-bottom": _freeze_bottom,
    "inn-beats-linear": ratio(0.0, -0.5, 0.1, ({"method": "inn"}, LINEAR)),
    "attention-varies-less": ratio(
        0.0, -0.9, 0.1, ({"kind": ATTENTION} | LINEAR, {"kind": "mean-all"} | LINEAR)
    ),
    "deep-layers-move-apart": ratio(0.0, 1.0, 0.2, [one | LINEAR for one in _STAGES]),
    "attention-is-kept": ratio(
        0.5, 0.0, 0.1, [one | LINEAR | {"kind": ATTENTION} for one in _STAGES]
    ),
    "inn-keeps-metric": _inn_keeps_metric,
    "complexity-drops": _complexity_drops,
}
