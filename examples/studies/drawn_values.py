"""Values of drawn models for `verdict_errors.py`, a rule for each claim.

Curves over layers are random walks, which rise or fall as a whole, as curves of models do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations

import numpy as np

from simlab.evidence.claim import Quantity
from simlab.evidence.phang import rand_index, score_of_blocks, spare_share
from simlab.similarity.blocks import find_blocks

LAYERS, TOLERANCE = 12, 0.01
Draw = Callable[[np.random.Generator, int, float], Quantity]


def _singles(values, **more):
    return Quantity("", {str(i): np.array([value]) for i, value in enumerate(values)}, **more)


def _pairs(units, value):
    """Return the values of all pairs of units; `value` gives the value of two numbers of units."""
    pairs = combinations(range(units), 2)
    return Quantity("", {(str(i), str(j)): np.array([value(i, j)]) for i, j in pairs})


def _block_diagonal(draw, units, effect):
    block = np.arange(LAYERS) >= LAYERS // 2
    distance = np.abs(np.subtract.outer(np.arange(LAYERS), np.arange(LAYERS)))
    mean = 0.9 - 0.05 * distance - 0.3 * effect * ~np.equal.outer(block, block)
    noise = draw.normal(0, 0.05, (units, LAYERS, LAYERS))
    grids = mean + (noise + noise.swapaxes(1, 2)) / 2
    scores = [find_blocks(grid, 2, permutations=50).calibrated for grid in grids]
    mean = grids.mean(axis=0)
    return _singles(scores, chance=lambda: find_blocks(mean, 2, permutations=100).pvalue)


def _blocks_agree(draw, units, effect):
    """Return the indices of splits; the effect is the share of splits in the middle."""
    middle = draw.uniform(size=units) < effect
    anywhere, near = draw.integers(1, LAYERS, units), 6 + draw.integers(-1, 2, units)
    places = np.where(middle, near, anywhere)
    return _pairs(units, lambda i, j: _agreement(int(places[i]), int(places[j])))


@cache
def _agreement(one: int, other: int) -> float:
    return float(rand_index(LAYERS, one, other))


def _first_layer(draw, units, effect):
    losses = draw.normal(0.1, 0.05, (units, LAYERS))
    losses[:, 0] += 0.2 * effect
    return _singles(losses[:, 0] - losses[:, 1:].mean(axis=1))


def walks(draw, units, drift):
    """Return the correlation of depth with random walks over the layers."""
    return trends(np.cumsum(draw.normal(drift, 1.0, (units, LAYERS)), axis=1))


def trends(curves):
    """Return Spearman's correlation of depth with each curve that has no ties."""
    count = curves.shape[1]
    ranks = np.argsort(np.argsort(curves, axis=1), axis=1)
    distances = np.sum((ranks - np.arange(count)) ** 2, axis=1)
    return 1 - 6 * distances / (count * (count**2 - 1))


def _trend(draw, units, effect):
    return _singles(walks(draw, units, effect))


def _later_spans(draw, units, effect):
    means = [0.3 * effect * np.arange(count) for count in (3, 6, 9, 12)]
    found = [trends(draw.normal(mean, 1.0, (units, len(mean)))) for mean in means]
    return _singles(np.mean(found, axis=0))


def _deeper_layers_vary(draw, units, effect):
    own = np.cumsum(draw.normal(effect / 2, 1.0, (units, LAYERS)), axis=1)
    found = [trends(own + one) for one in own]
    return _pairs(units, lambda i, j: found[i][j])


def _families_alike(draw, units, effect):
    """Return the value within each family, and the value of each pair; families are the units."""
    own = draw.normal(0, 0.02, units)
    level = 0.5 + np.add.outer(own, own) + draw.normal(0, 0.02, (units, units))
    within = {(str(i),): level[i, i][None] + 0.2 * effect for i in range(units)}
    pairs = combinations(range(units), 2)
    return Quantity("", within, minus={(str(i), str(j)): level[i, j][None] for i, j in pairs})


def _normal(paper, noise, nothing=0.0):
    """Return the rule whose units have normal values, of mean `nothing` without an effect."""

    def build(draw, units, effect):
        mean = nothing + effect * (paper - nothing)
        return _singles(draw.normal(mean, noise, units))

    return build


def _between(paper, noise, nothing=0.0):
    """Return the rule whose pairs have the sum of what each model and the pair add."""

    def build(draw, units, effect):
        own = draw.normal(0, noise, units)
        mean = nothing + effect * (paper - nothing)
        values = mean + np.add.outer(own, own) + draw.normal(0, noise, (units, units))
        return _pairs(units, lambda i, j: values[i, j])

    return build


def _spares_more(draw, units, effect):
    """Return shares of layers that can go, of 24 layers and of 12 whose curves are as noisy."""
    shares = []
    for layers, share in ((24, 0.33 + 0.17 * effect), (12, 0.33)):
        spare = np.floor(layers * share + draw.uniform(size=(units, 1)))
        gains = np.where(np.arange(1, layers) >= layers - spare, 0.0, -0.05)
        noisy = gains + draw.normal(0, 0.004, (units, layers - 1))
        curves = np.concatenate(
            [noisy, np.zeros((units, 1))], axis=1
        )  # the last is the whole model
        shares.append(spare_share(np.arange(1, layers + 1), curves.T, TOLERANCE))
    return _singles(np.subtract(*shares))


def _lower_layers_alike(draw, units, effect):
    """Return trends of pairs whose curves fall if there is an effect."""
    falls = walks(draw, units, -effect / 2)
    means = np.add.outer(falls, falls) / 2
    return _pairs(units, lambda i, j: means[i, j])


def _unlike_any(draw, units, effect):
    """Return how much less a quarter of the layers at the top is like its most similar layer."""
    distance = np.abs(np.subtract.outer(np.arange(LAYERS), np.arange(LAYERS)))
    mean = 0.9 - 0.05 * distance
    mean[-LAYERS // 4 :] -= 0.4 * effect
    own = draw.normal(0, 0.05, (units, LAYERS, 1))  # of a fine-tuned layer
    most = (mean + own + draw.normal(0, 0.05, (units, LAYERS, LAYERS))).max(axis=2)
    ends = most[:, -LAYERS // 4 :], most[:, : LAYERS // 4]
    return _singles(np.subtract(*(end.mean(axis=1) for end in ends)))


def _families_share(draw, units, effect):
    """Return scores of two models' blocks, whose grid has them only if there is an effect."""
    scores = []
    for places in draw.integers(4, LAYERS - 3, (units, 2)):
        blocks = [np.arange(LAYERS) >= place for place in places]
        same = np.equal.outer(*blocks)
        distance = np.abs(np.subtract.outer(np.arange(LAYERS), np.arange(LAYERS)))
        values = 0.6 - 0.03 * distance + 0.3 * effect * same
        values = values + draw.normal(0, 0.05, same.shape)
        scores.append(score_of_blocks(values[..., None], same[..., None])[0])
    return _singles(scores)


VALUES: dict[str, Draw] = {
    "block-diagonal": _block_diagonal,
    "blocks-agree": _blocks_agree,
    "first-layer-matters": _first_layer,
    "later-spans-cost-less": _later_spans,
    "top-layers-change": _trend,
    "higher-layers-localized": _trend,
    "families-alike": _families_alike,
    "deeper-layers-vary": _deeper_layers_vary,
    "top-layers-can-go": _normal(0.0, 0.004, nothing=-0.05),
    "tuned-beats-orig": _normal(0.1, 0.03),
    "electra-no-blocks": _normal(-0.4, 0.14),
    "electra-needs-top-layers": _normal(-0.1, 0.03),
    "tuning-delocalizes": _normal(-0.1, 0.03),
    "equal-depth": _between(0.2, 0.03),
    "representations-not-neurons": _between(0.4, 0.05),
    "freeze-bottom": _normal(0.05, 0.02),
    "inn-beats-linear": _between(-0.5, 0.1),
    "attention-varies-less": _between(-0.9, 0.1),
    "deep-layers-move-apart": _between(1.0, 0.2),
    "attention-is-kept": _between(0.0, 0.1, nothing=0.5),
    "inn-keeps-metric": _between(0.3, 0.05),
    "complexity-drops": _normal(-0.2, 0.05),
    "top-layers-unlike-any": _unlike_any,
    "families-share-blocks": _families_share,
    "inn-finds-known-map": _normal(-0.5, 0.1),
    "albert-spares-more": _spares_more,
    "lower-layers-alike": _lower_layers_alike,
}
