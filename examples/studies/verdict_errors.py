"""Error rates of the verdicts of `simcore claims`, by simulation.

Each rule gets drawn values of 3, 5, 10 and 25 units, without any effect and with an effect as large
as the paper's. Without an effect "holds" is false; with the effect "fails" is.

    python examples/studies/verdict_errors.py --trials 1000

The rows are in `results/verdict-errors.csv`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from simlab.evidence.blocks import rand_index, score_of_blocks
from simlab.evidence.claim import BELOW, MODELS, Evidence
from simlab.evidence.contrasts import spare_share
from simlab.evidence.intervals import ALPHA, UNDECIDED, Value, difference_of_groups, value_of
from simlab.evidence.judge import finding_of
from simlab.evidence.labels import Who
from simlab.evidence.rows import depth_trend
from simlab.evidence.units import units_of_task
from simlab.evidence.wording import ALIKE, KEPT, SHARE, SLIGHT, TREND
from simlab.evidence.wu import LOCALITY
from simlab.similarity.block_scores import find_blocks

RESULTS = Path(__file__).parent / "results" / "verdict-errors.csv"
UNITS = (3, 5, 10, 25)
LAYERS, TOLERANCE = 12, 0.01
SLOW = (
    "block-diagonal",
    "blocks-agree",
    "deeper-layers-vary",
    "lower-layers-alike",
)  # get a fifth of the trials
Draw = Callable[[np.random.Generator, int, float], Evidence]  # the effect is 0, or 1: the paper's


def _singles(values, least, side=1):
    return Evidence("", [value_of(str(i), v) for i, v in enumerate(values)], least, side)


def _pairs(draw, units, mean, noise, least, side=1):
    """Return values of pairs, in which each model adds an effect of its own to its pairs."""
    own = draw.normal(0, noise, units)
    values = [
        Value(frozenset([str(i), str(j)]), mean + own[i] + own[j] + draw.normal(0, noise))
        for i, j in combinations(range(units), 2)
    ]
    return Evidence("", values, least, side)


def _block_diagonal(draw, units, effect):
    block = np.arange(LAYERS) >= LAYERS // 2
    distance = np.abs(np.subtract.outer(np.arange(LAYERS), np.arange(LAYERS)))
    mean = 0.9 - 0.05 * distance - 0.3 * effect * ~np.equal.outer(block, block)
    noise = draw.normal(0, 0.05, (units, LAYERS, LAYERS))
    grids = mean + (noise + noise.swapaxes(1, 2)) / 2
    scores = [find_blocks(grid, 2, permutations=50).calibrated for grid in grids]
    chance = find_blocks(grids.mean(axis=0), 2, permutations=100).pvalue
    evidence = _singles(scores, SLIGHT)
    return Evidence("", evidence.values, SLIGHT, chance=chance)


def _blocks_agree(draw, units, effect):
    places = draw.integers(1, LAYERS, units) if not effect else 6 + draw.integers(-1, 2, units)
    splits = [{layer: int(layer >= place) for layer in range(LAYERS)} for place in places]
    values = [
        Value(frozenset([str(i), str(j)]), rand_index(splits[i], splits[j]))
        for i, j in combinations(range(units), 2)
    ]
    return Evidence("", values, SLIGHT)


def _first_layer(draw, units, effect):
    losses = draw.normal(0.1, 0.05, (units, LAYERS))
    losses[:, 0] += 0.2 * effect
    return _singles(losses[:, 0] - losses[:, 1:].mean(axis=1), TOLERANCE)


def _trend(draw, units, effect):
    """Return rank correlations of curves that wander, and rise if there is an effect."""
    depth = np.arange(LAYERS)
    curves = np.cumsum(draw.normal(effect, 1.0, (units, LAYERS)), axis=1)
    return _singles([depth_trend(depth, curve) for curve in curves], TREND)


def _later_spans(draw, units, effect):
    found = []
    for _ in range(units):
        one = [
            depth_trend(np.arange(count), draw.normal(0.3 * effect * np.arange(count), 1.0))
            for count in (3, 6, 9, 12)
        ]
        found.append(np.mean(one))
    return _singles(found, TREND)


def _deeper_layers_vary(draw, units, effect):
    own = np.cumsum(draw.normal(effect / 2, 1.0, (units, LAYERS)), axis=1)
    values = [
        Value(frozenset([str(i), str(j)]), depth_trend(range(LAYERS), own[i] + own[j]))
        for i, j in combinations(range(units), 2)
    ]
    return Evidence("", values, TREND)


def _families_alike(draw, units, effect):
    family, own = np.arange(units) % 2, draw.normal(0, 0.02, units)
    values = [
        Value(
            frozenset([str(i), str(j)]),
            0.5 + 0.2 * effect * same + own[i] + own[j] + draw.normal(0, 0.02),
            "within" if same else "across",
        )
        for i, j in combinations(range(units), 2)
        for same in [family[i] == family[j]]
    ]
    groups = difference_of_groups("within", "across")
    return Evidence("", values, ALIKE, statistic=groups)


def _normal(mean, spread, least, side=1, nothing=0.0):
    def values(draw, units, effect):
        return _singles(draw.normal(mean if effect else nothing, spread, units), least, side)

    return values


def _between(mean, noise, least, side=1):
    def values(draw, units, effect):
        return _pairs(draw, units, mean * effect, noise, least, side)

    return values


def _grows(mean, nothing, noise, least, side):
    def values(draw, units, effect):
        return _pairs(draw, units, mean if effect else nothing, noise, least, side)

    return values


def _difference(mean, noise, least, side=1):
    """Return values of tasks, each the difference of two kinds of models that are as noisy."""

    def values(draw, units, effect):
        kinds = draw.normal(0, noise, (2, units))
        return _singles(mean * effect + kinds[0] - kinds[1], least, side)

    return values


def _spares_more(draw, units, effect):
    """Return shares of layers that can go, of 24 layers and of 12 whose curves are as noisy."""
    shares = []
    for layers, spare in ((24, 0.5 if effect else 0.33), (12, 0.33)):
        cuts = np.arange(1, layers)  # the last layer is the whole model
        gains = np.where(cuts >= layers * (1 - spare), 0.0, -0.05)
        noisy = gains + draw.normal(0, 0.004, (units, layers - 1))
        curves = [dict(enumerate([*one, 0.0], 1)) for one in noisy]
        shares.append([spare_share(pd.Series(curve), TOLERANCE) for curve in curves])
    return _singles(np.subtract(*shares), SLIGHT)


def _falls(draw, units, effect):
    """Return trends of pairs whose curves wander, and fall if there is an effect."""
    own = np.cumsum(draw.normal(-effect / 2, 1.0, (units, LAYERS)), axis=1)
    trends = [depth_trend(range(LAYERS), curve) for curve in own]
    values = [
        Value(frozenset([str(i), str(j)]), (trends[i] + trends[j]) / 2)
        for i, j in combinations(range(units), 2)
    ]
    return Evidence("", values, -TREND, BELOW)


def _unlike_any(draw, units, effect):
    """Return how much less a quarter of the layers at the top is like its most similar layer."""
    distance = np.abs(np.subtract.outer(np.arange(LAYERS), np.arange(LAYERS)))
    mean = 0.9 - 0.05 * distance
    mean[-LAYERS // 4 :] -= 0.4 * effect
    own = draw.normal(0, 0.05, (units, LAYERS, 1))  # of a fine-tuned layer
    most = (mean + own + draw.normal(0, 0.05, (units, LAYERS, LAYERS))).max(axis=2)
    ends = most[:, -LAYERS // 4 :], most[:, : LAYERS // 4]
    return _singles(np.subtract(*(end.mean(axis=1) for end in ends)), -SLIGHT, BELOW)


def _families_share(draw, units, effect):
    """Return scores of two models' blocks, whose grid has them only if there is an effect."""
    scores = []
    for places in draw.integers(4, LAYERS - 3, (units, 2)):
        blocks = [np.arange(LAYERS) >= place for place in places]
        same = np.equal.outer(*blocks)
        distance = np.abs(np.subtract.outer(np.arange(LAYERS), np.arange(LAYERS)))
        values = 0.6 - 0.03 * distance + 0.3 * effect * same
        scores.append(score_of_blocks(values + draw.normal(0, 0.05, same.shape), same))
    return _singles(scores, SLIGHT)


RULES: dict[str, Draw] = {
    "block-diagonal": _block_diagonal,
    "blocks-agree": _blocks_agree,
    "top-layers-can-go": _normal(0.0, 0.004, -TOLERANCE, nothing=-0.05),
    "tuned-beats-orig": _normal(0.1, 0.03, TOLERANCE),
    "first-layer-matters": _first_layer,
    "later-spans-cost-less": _later_spans,
    "top-layers-change": _trend,
    "higher-layers-localized": _trend,
    "tuning-delocalizes": _normal(-0.1, 0.03, -LOCALITY, BELOW),
    "equal-depth": _between(0.2, 0.03, ALIKE),
    "families-alike": _families_alike,
    "freeze-bottom": _normal(0.05, 0.02, TOLERANCE),
    "inn-beats-linear": _between(-0.5, 0.1, -SHARE, BELOW),
    "deeper-layers-vary": _deeper_layers_vary,
    "attention-varies-less": _between(-0.9, 0.1, -SHARE, BELOW),
    "electra-no-blocks": _difference(-0.4, 0.1, -SLIGHT, BELOW),
    "electra-needs-top-layers": _difference(-0.1, 0.02, -TOLERANCE, BELOW),
    "albert-spares-more": _spares_more,
    "representations-not-neurons": _between(0.4, 0.05, SLIGHT),
    "lower-layers-alike": _falls,
    "deep-layers-move-apart": _between(1.0, 0.2, SHARE),
    "attention-is-kept": _grows(0.0, 0.5, 0.1, KEPT, BELOW),
    "inn-keeps-metric": _between(0.3, 0.05, TOLERANCE),
    "complexity-drops": _normal(-0.2, 0.05, -SHARE, BELOW),
    "top-layers-unlike-any": _unlike_any,
    "families-share-blocks": _families_share,
    "inn-finds-known-map": _normal(-0.5, 0.1, -SHARE, BELOW),
}


def verdict(evidence: Evidence) -> str:
    """Return the verdict on evidence that stands in a table alone."""
    names = {name for value in evidence.values for name in value.names}
    who = {name: Who(name, "", "") for name in names}
    kind, units = units_of_task(evidence.values, who, MODELS)
    found = finding_of("", "", evidence, kind, units, 0.0)
    return UNDECIDED if found.interval.pvalue > ALPHA else found.verdict


def rates(claim: str, units: int, effect: int, trials: int) -> dict[str, float]:
    """Return the share of each verdict."""
    draw = np.random.default_rng([list(RULES).index(claim), units, effect])
    verdicts = Counter(verdict(RULES[claim](draw, units, effect)) for _ in range(trials))
    return {name: verdicts[name] / trials for name in ("holds", "fails", UNDECIDED)}


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    trials = parser.parse_args().trials
    rows = [
        {"claim": claim, "truth": ("no effect", "effect")[effect], "units": units,
         "trials": count, **rates(claim, units, effect, count)}
        for claim in RULES
        for count in [trials // 5 if claim in SLOW else trials]
        for effect in (0, 1)
        for units in UNITS
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(RESULTS, index=False)


if __name__ == "__main__":
    main()
