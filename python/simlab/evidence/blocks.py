"""Claims of Phang et al. 2021 on blocks: FT-FT grids are block diagonal, with equal blocks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from simlab.evidence.claim import Evidence
from simlab.evidence.intervals import ALPHA, Value, value_of
from simlab.evidence.labels import TUNED
from simlab.evidence.rows import TaskRows, first_variant, layer_table, unordered
from simlab.evidence.wording import SLIGHT, number
from simlab.similarity.block_scores import MOST_COUNTED, find_blocks, pvalue_of_split

if TYPE_CHECKING:
    import pandas as pd

MEASURE = "cka"


def block_diagonal(rows: TaskRows) -> Iterator[Evidence]:
    """Score the best split of every fine-tuned model's layers into two blocks.

    All models of a base may owe their blocks to the base, so that their p-values are not
    independent: chance is computed for the mean of their grids.
    """
    grids = own_grids(rows)
    if not grids:
        return
    scores = _scores(grids)
    alike = _alike(grids)
    least = [_least_pvalue(len(tables[0])) for tables in alike]
    unable = ""
    if max(least) > ALPHA:
        unable = (
            f"{min(len(tables[0]) for tables in alike)} layers are too few: perfect blocks "
            f"have p = {number(max(least))}"
        )
    yield Evidence(
        "score of the split into two blocks, 0 at chance",
        [value_of(model, score) for model, score in scores.items()],
        SLIGHT,
        note=f"by model {', '.join(map(number, scores.values()))}",
        chance=partial(_chance, alike),
        unable=unable,
    )


def _chance(alike: list[list[pd.DataFrame]]) -> float:
    """Return the p-value of two blocks in the mean grid; of several, the largest."""
    return max(pvalue_of_split(sum(some[1:], some[0]) / len(some), 2) for some in alike)


def block_scores(rows: TaskRows) -> dict[str, float]:
    """Return the score of the best split into two blocks of every fine-tuned model."""
    return _scores(own_grids(rows))


def _scores(grids: dict[str, pd.DataFrame]) -> dict[str, float]:
    return {model: find_blocks(table, 2).calibrated for model, table in grids.items()}


def _alike(grids: dict[str, pd.DataFrame]) -> list[list[pd.DataFrame]]:
    """Return the grids in lists of equal layers, of which the first has the most grids."""
    by_layers: dict[tuple[int, ...], list[pd.DataFrame]] = {}
    for table in grids.values():
        defined = table.loc[table.notna().any(axis=1), table.notna().any(axis=0)]
        by_layers.setdefault(tuple(defined.index), []).append(defined)
    return sorted(by_layers.values(), key=len, reverse=True)


@cache
def _least_pvalue(layers: int) -> float:
    """Return the least p-value of perfect blocks of this number of layers, over all cuts.

    It is .0072 for seven layers, and smaller for more, which need no count.
    """
    if layers > MOST_COUNTED:
        return 0.0
    cuts = [np.arange(layers) >= place for place in range(1, layers)]
    grids = [np.equal.outer(block, block).astype(float) for block in cuts]
    return min(pvalue_of_split(grid, 2) for grid in grids)


def blocks_agree(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the two blocks of models that were fine-tuned with different seeds."""
    splits = {model: block_labels(table) for model, table in own_grids(rows).items()}
    origin = {model: rows.who[model].origin for model in splits}
    pairs = [
        Value(frozenset([a, b]), rand_index(splits[a], splits[b]))
        for a, b in combinations(splits, 2)
        if splits[a].keys() == splits[b].keys() and origin[a] == origin[b]
    ]
    if pairs:
        quantity = "adjusted Rand index of the blocks of two models, less chance"
        yield Evidence(quantity, pairs, SLIGHT)
    if scored := shared_scores(rows, splits, origin, 1):
        yield Evidence("score of the models' own blocks in FT[1]-FT[2] grids", scored, SLIGHT)


def rand_index(first: dict[int, int], second: dict[int, int]) -> float:
    """Return the adjusted Rand index of two splits of the same layers into two, above chance.

    Chance is the mean over all pairs of places where the two splits could be.
    """
    from sklearn.metrics import adjusted_rand_score

    index = adjusted_rand_score(
        [first[layer] for layer in first], [second[layer] for layer in first]
    )
    return float(index - _mean_rand_index(len(first)))


@cache
def _mean_rand_index(layers: int) -> float:
    from sklearn.metrics import adjusted_rand_score

    splits = [np.arange(layers) >= place for place in range(1, layers)]
    return float(np.mean([adjusted_rand_score(a, b) for a in splits for b in splits]))


def own_grids(rows: TaskRows) -> dict[str, pd.DataFrame]:
    """Return the CKA grid of every fine-tuned model with itself."""
    grids = rows.grids()
    is_own = (grids["measure"] == MEASURE) & (grids["role_x"] == TUNED) & (grids["x"] == grids["y"])
    tables = first_variant(grids[is_own]).groupby("x", sort=False)
    by_model = {str(model): layer_table(cells, embeddings=True) for model, cells in tables}
    return {
        model: table for model, table in by_model.items() if table.notna().any(axis=1).sum() > 1
    }


def block_labels(table: pd.DataFrame) -> dict[int, int]:
    """Return the block, 0 or 1, of each layer of a grid, undefined layers left out."""
    clusters = find_blocks(table, 2).clusters
    layers = [int(layer) for layer in table.index]
    return {layers[row]: block for block, rows in enumerate(clusters) for row in rows}


def shared_scores(
    rows: TaskRows, splits: dict[str, dict[int, int]], sources: dict[str, str], count: int
) -> list[Value]:
    """Return the score of both models' own blocks in the grids between two fine-tuned models.

    Pairs have models from this number of sources.
    """
    grids = rows.grids()
    tuned = (grids["role_x"] == TUNED) & (grids["role_y"] == TUNED) & (grids["x"] != grids["y"])
    return [
        Value(pair, float(np.mean([_shared_score(grid, splits) for grid in directions])))
        for pair, directions in unordered(
            first_variant(grids[tuned & (grids["measure"] == MEASURE)])
        )
        if pair <= splits.keys() and len({sources[model] for model in pair}) == count
    ]


def _shared_score(grid: pd.DataFrame, splits: dict[str, dict[int, int]]) -> float:
    """Score two models' own blocks in the grid between them."""
    x, y = splits[str(grid.iloc[0]["x"])], splits[str(grid.iloc[0]["y"])]
    values = layer_table(grid, embeddings=True).loc[list(x), list(y)].to_numpy(float)
    return score_of_blocks(values, np.equal.outer(list(x.values()), list(y.values())))


def score_of_blocks(values: np.ndarray, same: np.ndarray) -> float:
    """Score blocks in a grid of two models as `similarity.blocks` does in a grid of one.

    Distances have a sign here, because the grid is not symmetric. In models of unequal depth they
    are distances of relative depth, in steps of the model with fewer layers. Both arrays are
    [layers of x, layers of y]; `same` says whether two layers are in the same block.
    """
    depths = [np.linspace(0, min(values.shape) - 1, count) for count in values.shape]
    # Half a step goes up, and not to the even neighbour, so that all distances are as wide.
    distance = np.floor(np.subtract.outer(*depths).round(9) + 0.5)
    means = np.zeros_like(values)
    for at in np.unique(distance):
        means[distance == at] = values[distance == at].mean()
    room = float((1 - means)[same].sum())
    return float((values - means)[same].sum()) / room if room > 0 else float("nan")
