"""Claims of Phang et al. 2021 on blocks: FT-FT grids are block diagonal, with equal blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from simlab.evidence.claim import Evidence, Finding
from simlab.evidence.intervals import (
    ALPHA,
    FAILS,
    HOLDS,
    UNDECIDED,
    Interval,
    Unit,
    above,
    unit,
)
from simlab.evidence.labels import TUNED
from simlab.evidence.rows import TaskRows, first_variant, layer_table, unordered
from simlab.evidence.wording import number
from simlab.similarity.block_scores import find_blocks

if TYPE_CHECKING:
    import pandas as pd

MEASURE = "cka"
TASKS = "all"  # in place of the name of a task
SLIGHT = 0.1  # of the way from chance to perfect blocks: a mean below this is that of no blocks


def block_diagonal(rows: TaskRows) -> Iterator[Evidence]:
    """Score the best split of every fine-tuned model's layers into two blocks."""
    blocks = {model: find_blocks(table, 2) for model, table in _own_grids(rows).items()}
    if not blocks:
        return
    beyond_chance = np.mean([found.pvalue < ALPHA for found in blocks.values()])

    def decide(found: Interval) -> str:
        has_blocks, has_none = found.low > 0 and beyond_chance > 0.5, found.high < SLIGHT
        return UNDECIDED if has_blocks == has_none else HOLDS if has_blocks else FAILS

    scores = ", ".join(number(found.calibrated) for found in blocks.values())
    pvalues = ", ".join(number(found.pvalue) for found in blocks.values())
    yield Evidence(
        "score of the split into two blocks, 0 at chance",
        [unit(model, found.calibrated) for model, found in blocks.items()],
        decide,
        f"by model {scores}; p {pvalues}",
    )


def count_tasks(findings: Sequence[Finding]) -> Finding:
    """Estimate the share of tasks with block diagonal grids, with the exact binomial interval.

    The share is that of the decided tasks. The interval covers both extremes: no undecided task
    has such grids, or all have them.
    """
    from scipy.stats import binomtest

    count = len(findings)
    held = sum(finding.verdict == HOLDS for finding in findings)
    failed = sum(finding.verdict == FAILS for finding in findings)
    low = binomtest(held, count).proportion_ci(1 - ALPHA).low
    high = binomtest(count - failed, count).proportion_ci(1 - ALPHA).high
    estimate = held / (held + failed) if held + failed else math.nan
    open_tasks = count - held - failed
    return Finding(
        TASKS,
        findings[0].base,
        "share of tasks with block diagonal grids",
        Interval(estimate, low, high, count),
        HOLDS if low > 0.5 else FAILS if high < 0.5 else UNDECIDED,
        f"{held} of {count} tasks{f', {open_tasks} undecided' if open_tasks else ''}; "
        "the interval is over tasks",
    )


def blocks_agree(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the two blocks of models that were fine-tuned with different seeds."""
    splits = {model: _labels(table) for model, table in _own_grids(rows).items()}
    pairs = [
        Unit(frozenset([a, b]), rand_index(splits[a], splits[b]))
        for a, b in combinations(splits, 2)
        if splits[a].keys() == splits[b].keys()
    ]
    if pairs:
        yield Evidence("adjusted Rand index of the blocks of two models, less chance", pairs, above)
    cross = rows.grids()
    cross = cross[(cross["measure"] == MEASURE) & (cross["role_x"] == TUNED)]
    cross = first_variant(cross[(cross["role_y"] == TUNED) & (cross["x"] != cross["y"])])
    scored = [
        Unit(pair, float(np.mean([_shared_score(some, splits) for some in directions])))
        for pair, directions in unordered(cross)
        if pair <= splits.keys()
    ]
    if scored:
        yield Evidence("score of the models' own blocks in FT[1]-FT[2] grids", scored, above)


def rand_index(first: dict[int, int], second: dict[int, int]) -> float:
    """Return the adjusted Rand index of two splits of the same layers into two, above chance.

    Chance is the mean over all pairs of places where the two splits could be.
    """
    count = len(first)
    places = [[int(layer >= place) for layer in range(count)] for place in range(1, count)]
    chance = np.mean([adjusted_rand(a, b) for a in places for b in places])
    found = adjusted_rand([first[layer] for layer in first], [second[layer] for layer in first])
    return float(found - chance)


def adjusted_rand(first: Sequence[int], second: Sequence[int]) -> float:
    """Return the adjusted Rand index of two splits into 0 and 1 (Hubert and Arabie 1985)."""
    counts = np.zeros((2, 2))
    np.add.at(counts, (np.asarray(first), np.asarray(second)), 1)

    def pairs(sizes: np.ndarray) -> float:
        return float((sizes * (sizes - 1) / 2).sum())

    both, one, other = pairs(counts), pairs(counts.sum(axis=1)), pairs(counts.sum(axis=0))
    expected = one * other / pairs(counts.sum(keepdims=True))
    most = (one + other) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


def _own_grids(rows: TaskRows) -> dict[str, pd.DataFrame]:
    """Return the CKA grid of every fine-tuned model with itself."""
    grids = rows.grids()
    own = (grids["measure"] == MEASURE) & (grids["role_x"] == TUNED) & (grids["x"] == grids["y"])
    tables = first_variant(grids[own]).groupby("x", sort=False)
    found = {str(model): layer_table(some, embeddings=True) for model, some in tables}
    return {model: table for model, table in found.items() if table.notna().any(axis=1).sum() > 1}


def _labels(table: pd.DataFrame) -> dict[int, int]:
    """Return the block, 0 or 1, of each layer of a grid, undefined layers left out."""
    clusters = find_blocks(table, 2).clusters
    layers = [int(layer) for layer in table.index]
    return {layers[row]: block for block, rows in enumerate(clusters) for row in rows}


def _shared_score(grid: pd.DataFrame, splits: dict[str, dict[int, int]]) -> float:
    """Score two models' own blocks in the grid between them, as `similarity.blocks` does.

    Distances have a sign here, because the grid is not symmetric.
    """
    x, y = splits[str(grid.iloc[0]["x"])], splits[str(grid.iloc[0]["y"])]
    table = layer_table(grid, embeddings=True)
    values = table.loc[list(x), list(y)].to_numpy(float)
    distance = np.subtract.outer(np.arange(len(x)), np.arange(len(y)))
    means = np.zeros_like(values)
    for at in np.unique(distance):
        means[distance == at] = values[distance == at].mean()
    same = np.equal.outer(list(x.values()), list(y.values()))
    room = float((1 - means)[same].sum())
    return float((values - means)[same].sum()) / room if room > 0 else float("nan")
