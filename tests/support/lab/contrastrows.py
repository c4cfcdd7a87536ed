"""Constructed results for claims that compare kinds of models, architectures, or two stages.

As in `support.lab.claimrows`.
"""

import json
from dataclasses import replace
from itertools import product

import numpy as np

from simlab.results.results import (
    COMPLEXITY,
    FT,
    INJECTION,
    KNOWN_MAP,
    MSE,
    NUCLEAR,
    NUCLEAR_RAW,
    ORIG,
    RELATIVE,
    TRUNCATIONS,
)
from support.lab.claimrows import (
    LAYERS,
    band,
    before_tuning,
    curve,
    errors,
    grid,
    labels,
    leaning,
    pairs_of,
    planted,
    pretrained_apart,
    row,
)


def kinds(case, tasks, values):
    """Return rows of an ELECTRA, an ALBERT and a RoBERTa in each task.

    `values` gives the rows of a model from its label and from how much the named kind is ahead.
    """
    rows = []
    for number in range(tasks):
        for name in ("electra", "albert", "roberta"):
            label = f"{name}-FT[1]"
            one = values(name, label, leaning(case, number))
            rows += [replace(r, task=f"task {number}", base_x=f"hub/{name}-base") for r in one]
    return rows


def electra_no_blocks(case, models=3):
    def values(name, label, lead):
        # ELECTRA has blocks of this strength, the others the opposite.
        strength = (1 - lead) / 2.2 if name == "electra" else (1 + lead) / 2.2
        mixed = band() + strength * (planted(4) - band())
        return [replace(r, base_y=f"hub/{name}-base") for r in grid("FT-FT", mixed, label, label)]

    return kinds(case, models, values)


def electra_needs_top_layers(case, models=3):
    def values(name, label, lead):
        loss = 0.2 + 0.1 * lead if name == "electra" else 0.2
        metric = np.where(np.arange(LAYERS + 1) >= LAYERS - 1, 0.8, 0.8 - loss)
        return [r for mode in ("untuned", "tuned") for r in curve(TRUNCATIONS[mode], metric, label)]

    return kinds(case, models, values)


def albert_spares_more(case, models=3):
    def values(name, label, lead):
        spare = round(4 + 3 * lead) if name == "albert" else 4
        metric = np.where(np.arange(LAYERS + 1) >= LAYERS - spare, 0.8, 0.6)
        return [r for mode in ("untuned", "tuned") for r in curve(TRUNCATIONS[mode], metric, label)]

    return kinds(case, models, values)


def architectures(models, similarities):
    """Return a joint grid of models of their own bases; `similarities` by measure and pair."""
    names = [f"M{number}" for number in range(models)]
    return [
        found
        for (i, one), (j, other) in product(enumerate(names), enumerate(names))
        for measure, values in similarities(i, j).items()
        for found in grid("joint", values, one, other, measure, first=1, estimator="unbiased")
    ]


def representations_not_neurons(case, models=3):
    def similarities(i, j):
        lead = 0 if i == j else 0.1 * leaning(case, i + j)
        return {
            "cka": np.full((4, 4), 0.8 if i == j else 0.5 + lead),
            "neuronsim": np.full((4, 4), 0.8 if i == j else 0.4 - lead),
        }

    return architectures(models, similarities)


def lower_layers_alike(case, models=3):
    def similarities(i, j):
        falls = np.sign(leaning(case, i + j))
        return {"cka": 0.5 - 0.02 * falls * np.add.outer(np.arange(6), np.arange(6))}

    return architectures(models, similarities)


def top_layers_unlike_any(case, models=3):
    """Return FT-ORIG grids in which the top layers are like some pretrained layer, or like none."""
    rows, depth = [], np.arange(1, LAYERS + 1)
    for number, label in enumerate(labels(models)):
        falls = 0.4 * leaning(case, number) * np.linspace(-1, 1, LAYERS)
        values = 0.5 - falls[:, None] - 0.02 * np.abs(np.subtract.outer(depth, depth))
        rows += grid("FT-ORIG", values, label, "ORIG", first=1)
    return rows


def families_share_blocks(case, models=3):
    """Return two fine-tuned models of different depths in each task, and the grid between them."""
    layers = {"albert": 13, "roberta": 7}
    rows = []
    for number in range(models):
        made = []
        for name, count in layers.items():
            label = f"{name}-FT[1]"
            own = grid("FT-FT", planted(count // 2, count), label, label)
            made += [replace(r, base_x=name, base_y=name) for r in own]
        blocks = [np.arange(count) >= count // 2 for count in layers.values()]
        values = 0.5 + 0.3 * leaning(case, number) * (np.equal.outer(*blocks) - 0.5)
        between = grid("models", values, *(f"{name}-FT[1]" for name in layers))
        made += [replace(r, base_x="albert", base_y="roberta") for r in between]
        rows += [replace(r, task=f"task {number}") for r in made]
    return rows


def inn_finds_known_map(case, models=3):
    """Return errors of maps back from the outputs of untrained networks f."""
    rows = []
    for number in range(models):
        inn = 0.3 - 0.1 * leaning(case, number)
        for method, measure in product(("inn", "linear", "cca", "svcca", "pwcca"), (MSE, RELATIVE)):
            value = inn if method == "inn" else 0.3
            options = json.dumps({"method": method, "rows": "heldout"})
            places = {"layer_x": LAYERS, "layer_y": LAYERS, "options": options}
            x = f"f[{number}]"
            rows.append(
                row(KNOWN_MAP, value, measure, x, label_y="ORIG", kind="mean-all", **places)
            )
    return rows


def originals(rows):
    """Return rows of the pretrained models, under labels of their own."""
    named = []
    for one in before_tuning(rows):
        y = one.label_y and f"ORIG of {one.label_y}"
        named.append(replace(one, label_x=f"ORIG of {one.label_x}", label_y=y))
    return named


def before_and_after(case, models, kind, change):
    """Return errors of maps before and after fine-tuning; `change` by the number of the pair."""
    rows = []
    for number, one, other in pairs_of(models):
        before = np.linspace(0.3, 0.4, LAYERS)
        after = before * (1 + change(leaning(case, number)))
        for measure, (stages, values) in product((MSE, RELATIVE), ((ORIG, before), (FT, after))):
            made = errors([values] * 2, one, other, measure, methods=["inn", "linear"], kind=kind)
            rows += pretrained_apart(made) if stages == FT else originals(made)
    return rows


def deep_layers_move_apart(case, models=3):
    return before_and_after(case, models, "cls", lambda lead: 0.5 * lead)


def attention_is_kept(case, models=3):
    return before_and_after(case, models, "attention", lambda lead: 0.1 - 0.4 * lead)


def inn_keeps_metric(case, models=3):
    rows = []
    for number, one, other in pairs_of(models):
        values = {"itself": 0.85, "inn": 0.6 + 0.1 * leaning(case, number)}
        for method, value in (
            values | dict.fromkeys(("linear", "cca", "pwcca", "mlp"), 0.6)
        ).items():
            options = json.dumps({"method": method, "fit_on": "mean-all"})
            places = {"layer_x": LAYERS, "layer_y": LAYERS, "kind": "all", "options": options}
            rows.append(row(INJECTION, value, model=one, label_y=other, **places))
    return pretrained_apart(rows)


def complexity_drops(case, models=3):
    rows = []
    for number, label in enumerate(labels(models)):
        norms = np.full(LAYERS + 1, 9.0)
        norms[-3:] -= 3 * leaning(case, number)
        for measure in (NUCLEAR, NUCLEAR_RAW):
            rows += curve(COMPLEXITY, norms, label, measure, kind="mean-all")
    return [*pretrained_apart(rows), *originals(rows)]


BUILDERS = {
    "electra-no-blocks": electra_no_blocks,
    "electra-needs-top-layers": electra_needs_top_layers,
    "albert-spares-more": albert_spares_more,
    "top-layers-unlike-any": top_layers_unlike_any,
    "families-share-blocks": families_share_blocks,
    "inn-finds-known-map": inn_finds_known_map,
    "representations-not-neurons": representations_not_neurons,
    "lower-layers-alike": lower_layers_alike,
    "deep-layers-move-apart": deep_layers_move_apart,
    "attention-is-kept": attention_is_kept,
    "inn-keeps-metric": inn_keeps_metric,
    "complexity-drops": complexity_drops,
}
