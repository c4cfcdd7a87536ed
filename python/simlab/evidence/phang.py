"""Claims of Phang et al. 2021: blocks of layers, layers that can go, layers that cannot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations, product

import numpy as np
import pandas as pd

from simlab.evidence.claim import Quantity, Values, compared, depth_trend, mean, number
from simlab.evidence.rows import TUNED, Task, first_variant
from simlab.results.results import GRIDS, SKIPPING, TRUNCATIONS
from simlab.similarity.blocks import find_blocks, largest_scores, pvalue_of_split

TOP_SHARE = 0.25  # of the layers of a model
LEAST_LAYERS = 6  # whose perfect blocks have p = .03; of five layers, they have .17
MEASURE = "cka"


class _Blocks:
    """The two blocks of the defined layers of a grid of a model with itself."""

    def __init__(self, layers: np.ndarray, _: np.ndarray, grid: np.ndarray) -> None:
        defined = np.isfinite(grid[..., 0]).any(axis=1)
        self.layers, grid = tuple(layers[defined]), grid[defined][:, defined]
        self.grid, grids = grid[..., 0], np.moveaxis(grid, -1, 0)
        if len(self.layers) > 1:
            scores, starts = largest_scores((grids + grids.swapaxes(1, 2)) / 2, 2)
            chance = find_blocks(self.grid, 2).chance
            self.scores = (scores - chance) / (1 - chance) if chance < 1 - 1e-9 else 0 * scores
            self.place = starts[:, 1]  # the first layer of the second block, [draws]

    def second(self, layers: np.ndarray) -> np.ndarray:
        """Return which of these layers are in the second block, [layers, draws]."""
        return np.array([self.layers.index(layer) >= self.place for layer in layers])


def _blocks(task: Task) -> dict[str, _Blocks]:
    """Return the blocks of every fine-tuned model."""
    rows = task.rows(*GRIDS)
    within = (rows["measure"] == MEASURE) & (rows["role_x"] == TUNED) & (rows["x"] == rows["y"])
    grids = task.by(first_variant(rows[within]), "x", "layer_x", "layer_y")
    blocks = {model: _Blocks(*grid) for model, grid in grids.items()}
    return {model: split for model, split in blocks.items() if len(split.layers) > 1}


def _block_diagonal(task: Task) -> Iterator[Quantity]:
    blocks = _blocks(task)
    # Models of a base may owe their blocks to it, so that their p-values are not independent.
    alike: dict[tuple[int, ...], list[np.ndarray]] = {}
    for split in blocks.values():
        alike.setdefault(split.layers, []).append(split.grid)
    means = [np.mean(grids, axis=0) for grids in alike.values()]
    fewest = min(map(len, means), default=LEAST_LAYERS)
    yield Quantity(
        "score of the split into two blocks, 0 at chance",
        {model: split.scores for model, split in blocks.items()},
        f"by model {', '.join(number(split.scores[0]) for split in blocks.values())}",
        chance=lambda: max(pvalue_of_split(grid, 2) for grid in means),
        unable=f"blocks of {fewest} layers are never beyond chance" * (fewest < LEAST_LAYERS),
    )


def _blocks_agree(task: Task) -> Iterator[Quantity]:
    blocks = _blocks(task)
    origin = task.who["origin"]
    indices = {
        (a, b): rand_index(len(blocks[a].layers), blocks[a].place, blocks[b].place)
        for a, b in combinations(blocks, 2)
        if blocks[a].layers == blocks[b].layers and origin[a] == origin[b]
    }
    yield Quantity("adjusted Rand index of the blocks of two models, less chance", indices)
    scores = _shared_scores(task, blocks, origin, 1)
    yield Quantity("score of the models' own blocks in FT[1]-FT[2] grids", scores)


def rand_index(layers: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the adjusted Rand index of two splits of layers at these places, above chance."""
    indices = _rand_indices(layers)
    return indices[np.asarray(first) - 1, np.asarray(second) - 1] - indices.mean()


@cache
def _rand_indices(layers: int) -> np.ndarray:
    from sklearn.metrics import adjusted_rand_score

    splits = [np.arange(layers) >= place for place in range(1, layers)]
    return np.array([[adjusted_rand_score(a, b) for b in splits] for a in splits])


def _shared_scores(
    task: Task, blocks: Mapping[str, _Blocks], sources: pd.Series, count: int
) -> Values:
    """Return the score of both models' own blocks in the grids between two fine-tuned models."""
    rows = task.rows(*GRIDS)
    tuned = (rows["role_x"] == TUNED) & (rows["role_y"] == TUNED) & (rows["x"] != rows["y"])
    rows = first_variant(rows[tuned & (rows["measure"] == MEASURE)])
    scores = {}
    for (x, y), (*layers, grid) in task.by(rows, "xy", "layer_x", "layer_y").items():
        if {x, y} <= blocks.keys() and len({sources[x], sources[y]}) == count:
            sides = list(zip((blocks[x], blocks[y]), layers, strict=True))
            kept = [np.isin(numbers, split.layers) for split, numbers in sides]
            in_x, in_y = (
                split.second(numbers[some])
                for (split, numbers), some in zip(sides, kept, strict=True)
            )
            scores[x, y] = score_of_blocks(grid[np.ix_(*kept)], in_x[:, None] == in_y)
    return task.pairs(scores)


def score_of_blocks(values: np.ndarray, same: np.ndarray) -> np.ndarray:
    """Score blocks in a grid of two models as `similarity.blocks` does in a grid of one.

    Distances have a sign here, because the grid is not symmetric. In models of unequal depth they
    are distances of relative depth, in steps of the model with fewer layers. Both arrays are
    [layers of x, layers of y, draws]; `same` says whether two layers are in the same block.
    """
    depths = [np.linspace(0, min(values.shape[:2]) - 1, count) for count in values.shape[:2]]
    # Half a step goes up, and not to the even neighbour, so that all distances are as wide.
    distance = np.floor(np.subtract.outer(*depths).round(9) + 0.5)
    means = np.zeros_like(values)
    for lag in np.unique(distance):
        means[distance == lag] = values[distance == lag].mean(axis=0)
    room, gain = (np.where(same, v, 0.0).sum(axis=(0, 1)) for v in (1 - means, values - means))
    return np.divide(gain, room, out=np.full_like(gain, np.nan), where=room > 0)


def _top_layers_unlike_any(task: Task) -> Iterator[Quantity]:
    rows = task.rows(*GRIDS)
    rows = first_variant(task.tuning(rows[rows["measure"] == MEASURE]))
    top, bottom = {}, {}
    # A joint grid has both directions, which are equal.
    for model, (layers, _, grid) in task.by(rows, "x", "layer_x", "layer_y").items():
        most = np.where(np.isnan(grid), -np.inf, grid).max(axis=1)
        most = most[(layers > 0) & np.isfinite(most[:, 0])]
        count = math.ceil(TOP_SHARE * len(most))
        if len(most) > count:
            top[model], bottom[model] = mean(most[-count:]), mean(most[:count])
    text = "CKA of the top quarter of the layers with the pretrained layer most like each, minus "
    yield compared(f"{text}the same of the bottom quarter", {"top": top, "bottom": bottom})


def _families_share_blocks(task: Task) -> Iterator[Quantity]:
    blocks = _blocks(task)
    bases = task.who["architecture"]
    scores = _shared_scores(task, blocks, bases, 2)
    yield Quantity("score of the models' own blocks in grids between two base models", scores)


def _curves(task: Task, mode: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the layers of each model, up to its last, and its metric [layers, draws]."""
    return task.by(task.rows(TRUNCATIONS[mode], metric=True), "x", "layer_x", once=True)


def _below_whole(task: Task, mode: str) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield each model, its layers, and its metric at each minus that of the whole model."""
    whole = _curves(task, "untuned")
    for model, (layers, curve) in _curves(task, mode).items():
        if model in whole:
            yield model, layers, curve - whole[model][1][-1]


def _without_top(task: Task, mode: str) -> dict[str, np.ndarray]:
    """Return the change of each model's metric without its top quarter.

    The number of layers is fixed beforehand: the best of several would look good by chance.
    """
    return {
        model: mean(gains[layers == layers[-1] - math.ceil(TOP_SHARE * layers[-1])])
        for model, layers, gains in _below_whole(task, mode)
    }


_WITHOUT_TOP = "metric without the top quarter of the layers minus with all, {} head"


def _top_layers_can_go(task: Task) -> Iterator[Quantity]:
    for mode in ("untuned", "tuned"):
        yield Quantity(_WITHOUT_TOP.format(mode), _without_top(task, mode))


def _tuned_beats_orig(task: Task) -> Iterator[Quantity]:
    tuned, orig = (_curves(task, mode) for mode in ("tuned", "tuned-orig"))
    gains = {}
    for model in (model for model in tuned if model in orig):
        both = np.intersect1d(tuned[model][0], orig[model][0])
        sides = [
            curve[np.isin(layers, both[both > 0])] for layers, curve in (tuned[model], orig[model])
        ]
        gains[model] = mean(sides[0] - sides[1])
    yield Quantity("tuned minus tuned-orig, mean over layers", gains)


def _losses(task: Task) -> dict[str, dict[tuple[int, int], np.ndarray]]:
    """Return the loss of each model without each span of layers i + 1 to j."""
    curves = task.by(task.rows(SKIPPING, metric=True), "x", "layer_x", "layer_y", once=True)
    losses = {}
    for model, (starts, ends, metric) in curves.items():
        spans = zip(product(starts, ends), metric.reshape(-1, metric.shape[2]), strict=True)
        metrics = {span: value for span, value in spans if np.isfinite(value[0])}
        whole = metrics.pop((0, 0), np.array([np.nan]))
        losses[model] = {span: whole - value for span, value in metrics.items()}
    return losses


def _first_layer_matters(task: Task) -> Iterator[Quantity]:
    values, first = {}, 0
    for model, losses in _losses(task).items():
        single = {i: loss for (i, j), loss in losses.items() if j == i + 1}
        if 0 in single and len(single) > 1:
            values[model] = single[0] - mean([loss for i, loss in single.items() if i > 0])
            first += max(single, key=lambda i: single[i][0]) == 0
    text = "loss without layer 1 minus the mean loss without another layer"
    yield Quantity(text, values, f"layer 1 costs most in {first} of {len(values)} models")


def _later_spans_cost_less(task: Task) -> Iterator[Quantity]:
    values = {}
    for model, losses in _losses(task).items():
        lengths = {j - i: sorted(k for k, m in losses if m - k == j - i) for i, j in losses}
        values[model] = mean(
            [
                -depth_trend(starts, np.stack([losses[i, i + length] for i in starts]))
                for length, starts in lengths.items()
            ]
        )
    text = "Spearman's correlation of the start of a span and the metric without it"
    yield Quantity(text, values)


def _contrast(
    task: Task, text: str, values: Mapping[str, np.ndarray], kind: str, without: str = "\0"
) -> Iterator[Quantity]:
    """Yield the models whose names say a kind minus the others, if there are both."""
    parts: dict[tuple[bool, str, str], dict[str, np.ndarray]] = {}
    for model, value in values.items():
        who = task.who.loc[model]
        called = f"{who.family} {who.origin} {model}".lower()
        if not math.isnan(value[0]) and without not in called:
            parts.setdefault((kind in called, who.family, who.tuned_on), {})[model] = value
    sides: dict[bool, dict[tuple[str, ...], np.ndarray]] = {True: {}, False: {}}
    for (is_kind, *_), losses in parts.items():
        sides[is_kind][tuple(losses)] = mean([*losses.values()])
    if all(sides.values()):
        yield Quantity(text, sides[True], minus=sides[False])


def _electra_no_blocks(task: Task) -> Iterator[Quantity]:
    scores = {model: split.scores for model, split in _blocks(task).items()}
    text = "score of the split into two blocks, ELECTRA minus the other models"
    yield from _contrast(task, text, scores, "electra")


def _electra_needs_top_layers(task: Task) -> Iterator[Quantity]:
    for mode in ("untuned", "tuned"):
        text = f"{_WITHOUT_TOP.format(mode)}, ELECTRA minus the other models"
        yield from _contrast(task, text, _without_top(task, mode), "electra")


def _albert_spares_more(task: Task) -> Iterator[Quantity]:
    for mode in ("untuned", "tuned"):
        shares = {
            model: spare_share(layers, gains, task.options.tolerance)
            for model, layers, gains in _below_whole(task, mode)
        }
        text = f"share of layers that can go, {mode} head, ALBERT minus the other models"
        yield from _contrast(task, text, shares, "albert", without="electra")


def spare_share(layers: np.ndarray, gains: np.ndarray, tolerance: float) -> np.ndarray:
    """Return the share of layers that can go one after the other from the top, for each draw.

    The lowest of all layers at which the loss is small could be a lucky one, above which many cost.
    """
    gains, layers = gains[layers > 0], layers[layers > 0]
    cheap = (gains[-2::-1] >= -tolerance).cumprod(axis=0).sum(axis=0)
    return (layers[-1] - layers[len(layers) - 1 - cheap]) / layers[-1]
