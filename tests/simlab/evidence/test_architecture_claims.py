"""Claims about architectures: their units are base models or families, not pretraining seeds."""

from itertools import combinations, product

import numpy as np
import pytest

from simlab.evidence.claim import ARCHITECTURES, MODELS, Evidence
from simlab.evidence.intervals import CANNOT, HOLDS, Value, difference_of_groups
from simlab.evidence.judge import finding_of
from simlab.evidence.labels import Who
from simlab.evidence.options import ClaimOptions
from simlab.evidence.units import units_of_task
from simlab.evidence.wording import SLIGHT
from simlab.store.results import ORIG, to_frame
from support.lab.claimrows import grid
from support.lab.judging import BY_NAME, judged

CLAIMS = [name for name, claim in BY_NAME.items() if claim.about == ARCHITECTURES]
MOST_WRONG = 0.05
NAMES = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
SEEDS, LAYERS = 5, 4
ESTIMATORS = {"cka": "unbiased", "neuronsim": None}


def similarity(measure, x, y):
    """Return similarities of layers of two models that are as each claim has them."""
    if x.partition("[")[0] == y.partition("[")[0]:
        return np.full((LAYERS, LAYERS), 0.9 if x == y else 0.8)
    if measure == "neuronsim":
        return np.full((LAYERS, LAYERS), 0.1)
    layers = np.arange(LAYERS)
    return 0.6 - 0.015 * np.add.outer(layers, layers) + 0.1 * np.eye(LAYERS)


def joint(bases, seeds, measures=("cka",)):
    """Return a joint grid of models of several bases, pretrained with several seeds each."""
    models = [(f"{base}[{seed}]", base, seed) for base in NAMES[:bases] for seed in range(seeds)]
    return to_frame(
        [
            row
            for x, y in product(models, models)
            for measure in measures
            for row in grid(
                "joint",
                similarity(measure, x[0], y[0]),
                x[0],
                y[0],
                measure,
                first=1,
                **{"base_x": x[1], "seed_x": x[2], "base_y": y[1], "seed_y": y[2]},
                **{"stage_x": ORIG, "stage_y": ORIG, "estimator": ESTIMATORS[measure]},
            )
        ]
    )


def finding(name, bases, seeds):
    """Return the finding of a claim; each base is a family where the claim is about families."""
    families = {base: f"{base}*" for base in NAMES} if name == "families-alike" else {}
    measures = ("cka", "neuronsim") if name == "representations-not-neurons" else ("cka",)
    (found,) = judged(name, joint(bases, seeds, measures), ClaimOptions(families=families))
    return found


def test_the_claims_about_architectures_are_those_that_compare_them():
    assert sorted(CLAIMS) == [
        *("equal-depth", "families-alike", "lower-layers-alike", "representations-not-neurons"),
    ]


@pytest.mark.parametrize("name", CLAIMS)
def test_two_architectures_decide_nothing_whatever_their_seeds(name):
    found = finding(name, 2, SEEDS)
    assert (found.unit, found.interval.count) == (ARCHITECTURES, 2)
    assert found.verdict == CANNOT
    assert "wanted 3 architectures or more" in found.note


@pytest.mark.parametrize("name", CLAIMS)
def test_six_architectures_decide(name):
    """They agree, so that a test of signs decides, which needs six."""
    found = finding(name, 6, 2)
    assert (found.unit, found.interval.count) == (ARCHITECTURES, 6)
    assert found.verdict == HOLDS


def test_families_are_the_units_where_they_are_named():
    families = {"vowels": "[ae]*", "beta": "beta*", "rest": "[gd]*"}
    found = judged("lower-layers-alike", joint(5, 1), ClaimOptions(families=families))
    assert {(one.unit, one.interval.count) for one in found} == {(ARCHITECTURES, 3)}


def test_pairs_of_one_pair_of_architectures_are_averaged_first():
    who = {f"{base}{seed}": Who(f"{base}[{seed}]", base, "") for base in "abc" for seed in range(9)}
    numbers = {frozenset("ab"): 1.0, frozenset("ac"): 2.0, frozenset("bc"): 6.0}
    # One pair of models for a and b, and 81 for a and c.
    pairs = [("a0", "b0"), ("b0", "c0"), *product([f"a{s}" for s in range(9)],
                                                   [f"c{s}" for s in range(9)])]  # fmt: skip
    values = [Value(frozenset(pair), numbers[frozenset(x[0] for x in pair)]) for pair in pairs]
    values.append(Value(frozenset(["a1", "b1"]), float("nan")))
    kind, units = units_of_task(values, who, ARCHITECTURES)
    assert kind == ARCHITECTURES
    assert {one.names: one.value for one in units} == numbers


def drawn(draw, bases, grouped):
    """Return evidence for an effect that is 0 in the mean over pairs of architectures."""
    who, values = {}, []
    models = [(base, seed) for base in range(bases) for seed in range(SEEDS)]
    for base, seed in models:
        who[f"{base} {seed}"] = Who(f"{base}[{seed}]", str(base), "")
    of_pair = draw.normal(0, 0.2, (bases, bases))
    for x, y in combinations(models, 2):
        if grouped or x[0] != y[0]:
            value = of_pair[x[0], y[0]] + draw.normal(0, 0.03)
            group = "within" if x[0] == y[0] else "across"
            names = frozenset(f"{base} {seed}" for base, seed in (x, y))
            values.append(Value(names, value, group if grouped else ""))
    how = {"statistic": difference_of_groups("within", "across")} if grouped else {}
    return Evidence("", values, SLIGHT, **how), who


def wrong(bases, about, trials, *, grouped=False):
    """Return in which share of the trials "holds" is found."""
    draw, found = np.random.default_rng(bases), 0
    for _ in range(trials):
        evidence, who = drawn(draw, bases, grouped)
        one = finding_of("", "", evidence, *units_of_task(evidence.values, who, about), 0.0)
        found += one.verdict == HOLDS and one.interval.pvalue <= 0.05
    return found / trials


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("bases", [2, 3, 5])
def test_architectures_that_differ_by_chance_are_seldom_taken_for_an_effect(bases, grouped):
    assert wrong(bases, ARCHITECTURES, 200, grouped=grouped) <= MOST_WRONG


def test_seeds_of_two_architectures_would_decide_by_chance():
    assert wrong(2, MODELS, 200) > 4 * MOST_WRONG
