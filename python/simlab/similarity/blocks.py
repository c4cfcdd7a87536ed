"""Score how block diagonal a grid of layers is (Phang et al. 2021, sections 3 and 4).

Layers of a fine-tuned model often form clusters of consecutive layers that are similar within a
cluster and dissimilar between clusters. But neighbouring layers are always more alike than distant
layers, so the similarity within clusters is compared with the mean similarity at the same distance.

Let S be the L x L similarities of the layers of one model, and m(d) the mean of S(i, j) over all
pairs with |i - j| = d. A split of the layers into clusters of consecutive layers has

    excess = sum over pairs i < j in the same cluster of S(i, j) - m(j - i)
    score  = excess / sum over the same pairs of 1 - m(j - i)

For every number of clusters k, dynamic programming over the start of the last cluster finds the
split with the largest excess exactly: O(L^2) sums and O(k L^2) steps. If S is 1 within planted
blocks and 0 between them, no other split has so large an excess, whatever the sizes of the blocks.

The score is 1 for such perfect blocks, and 0 if similarity depends on distance alone, as in a
constant matrix and in any band matrix. The score of a single cluster is exactly 0: over all pairs
the excess cancels. The score is the share of the way from m(d) to 1 that the similarity of pairs
within clusters has gone. The score does not depend on the number of layers or on the scale of
dissimilarity, so models and tasks can be compared.

The number of clusters is the smallest k whose largest excess is at least `ENOUGH` times the largest
excess for any k. If the score of this split is below `LOWEST_SCORE`, there is one cluster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError
from simlab.store.files import hash_file
from simlab.store.results import (
    BLOCK_SCORE,
    BLOCKS,
    GRID_COLUMNS,
    ResultRow,
    ensure_results,
    is_alignment,
    read_results,
    results_files,
)
from simlab.store.tables import require_table_file

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

ENOUGH = 0.9
LOWEST_SCORE = 0.1
_ROUNDING = 1e-12  # an excess of at most this much per pair of layers is rounding


@dataclass(frozen=True)
class Blocks:
    """The best split of the layers of one model.

    Attributes
    ----------
    clusters
        For each cluster, the numbers of its layers in rising order (rows of the matrix).
    score
        How block diagonal the matrix is, from 0 to 1; 0 for a single cluster.
    within, between
        Mean similarity of pairs of layers in the same cluster and in different clusters; nan if
        there are no such pairs.
    undefined
        Layers that are in no cluster, because their similarities are nan.
    excess_by_count
        The largest excess of a split into 1, 2, ... clusters.
    """

    clusters: tuple[tuple[int, ...], ...]
    score: float
    within: float
    between: float
    undefined: tuple[int, ...]
    excess_by_count: tuple[float, ...]


def find_blocks(similarity: ArrayLike, clusters: int | None = None) -> Blocks:
    """Split the layers of `similarity` into the best clusters of consecutive layers.

    Parameters
    ----------
    similarity
        [L, L], the layers of one model with themselves. The diagonal is not used. For an
        asymmetric measure, the mean of both directions is used. A layer whose whole row is nan is
        left out (CLS at the embedding output never varies).
    clusters
        Number of clusters; None lets the criterion in the docstring of this module decide.

    Raises
    ------
    ValueError
        The matrix is not square, all its rows are nan, it has infinite values or nan in part of a
        row, or there are fewer layers than `clusters`.
    """
    matrix = np.asarray(similarity, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"similarity: wanted a square matrix [L, L], found shape {matrix.shape}")
    kept = np.flatnonzero(~np.isnan(matrix).all(axis=1))
    if not kept.size:
        raise ValueError("similarity: wanted a row with values, found only nan")
    values = matrix[np.ix_(kept, kept)]
    values = (values + values.T) / 2
    if not np.isfinite(values).all():
        raise ValueError(
            "similarity: wanted finite values, or nan in whole rows, found nan or infinity in a row"
        )
    if clusters is not None and not 1 <= clusters <= len(kept):
        raise ValueError(f"clusters: wanted 1 to {len(kept)}, found {clusters}")
    return _best_blocks(values, kept, clusters, len(matrix))


def blocks(
    results: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    clusters: int | None = None,
    *,
    overwrite: bool = False,
) -> list[tuple[Blocks, list[ResultRow]]]:
    """Split the layers of every grid of a model with itself into clusters, and score the split.

    Parameters
    ----------
    results
        Results files with grids, or folders of results files.
    out
        Results file (.parquet) for clusters and scores; `plot` outlines the clusters. None writes
        no file.
    clusters
        Number of clusters; None lets the criterion in the docstring of this module decide.
    overwrite
        Make `out` anew if it was made from other inputs; if False, raise an error instead.

    Returns
    -------
    list of (Blocks, list of ResultRow)
        For each grid, its clusters and the rows for the results table (`block_rows`).

    Raises
    ------
    UserError
        `results` have no such grid, a grid has fewer layers than `clusters`, or `out` has other
        content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, blocks, extract, grid
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = extract("minilm", "rt", "runs/reps/orig", label="ORIG", task_options=few)
    >>> step = grid("runs/reps/orig", "runs/results/orig.parquet", estimator="biased")
    >>> ((found, rows),) = blocks("runs/results/orig.parquet", clusters=2)
    >>> len(found.clusters)
    2
    """
    path = None if out is None else Path(out)
    if path is not None:
        require_table_file(path)
    files = [f for f in results_files(results) if path is None or f.resolve() != path.resolve()]
    found = list(block_rows(read_results(files), clusters))
    if path is not None:
        hashes = [hash_file(file) for file in files]
        inputs = {"step": BLOCKS, "results": hashes, "clusters": clusters}
        inputs |= {"enough": ENOUGH, "lowest_score": LOWEST_SCORE}
        rows = [row for _, of_grid in found for row in of_grid]
        ensure_results(path, inputs, lambda: rows, replace=overwrite)
    return found


def block_rows(
    frame: pd.DataFrame, clusters: int | None = None
) -> Iterator[tuple[Blocks, list[ResultRow]]]:
    """Find the blocks of every grid of a model with itself in a results table.

    Yields
    ------
    blocks, rows
        The blocks, with layers numbered as in the table, and rows for the results table: a row for
        each layer, whose value is the number of its cluster, from 1 (nan if the layer is
        undefined), and a row without a layer, whose value is the score.

    Raises
    ------
    UserError
        There is no such grid, or a grid has fewer defined layers than `clusters`.
    """
    own = (frame["model_x"] == frame["model_y"]) & frame["layer_y"].notna() & ~is_alignment(frame)
    # Two models without a seed are the same model if they have the same name.
    own &= frame["seed_x"].fillna(-1) == frame["seed_y"].fillna(-1)
    grids = frame[own].drop_duplicates([*GRID_COLUMNS, "layer_x", "layer_y"])
    if grids.empty:
        found = ", ".join(dict.fromkeys(frame["comparison"])) or "an empty table"
        raise UserError(f"results: wanted a grid of a model with itself (FT-FT), found {found}")
    for _, rows in grids.groupby(list(GRID_COLUMNS), dropna=False, sort=False):
        table = rows.pivot(index="layer_x", columns="layer_y", values="value")
        table = table.sort_index().sort_index(axis=1)
        first = rows.iloc[0]
        try:
            blocks = find_blocks(table.to_numpy(), clusters)
        except ValueError as error:
            raise UserError(f"results, grid of {first['model_x']}: {error}") from None
        yield _renumbered(blocks, [int(layer) for layer in table.index], first)


def _renumbered(
    blocks: Blocks, layers: Sequence[int], first: pd.Series
) -> tuple[Blocks, list[ResultRow]]:
    import pandas as pd

    common: dict[str, Any] = {
        name: None if pd.isna(first[name]) else first[name] for name in GRID_COLUMNS
    }
    named = dataclasses.replace(
        blocks,
        clusters=tuple(tuple(layers[row] for row in cluster) for cluster in blocks.clusters),
        undefined=tuple(layers[row] for row in blocks.undefined),
    )
    numbers = {layer: float("nan") for layer in named.undefined}
    for number, cluster in enumerate(named.clusters, 1):
        numbers |= dict.fromkeys(cluster, float(number))
    rows = [ResultRow(comparison=BLOCK_SCORE, value=blocks.score, **common)]
    rows += [
        ResultRow(comparison=BLOCKS, layer_x=layer, value=numbers[layer], **common)
        for layer in layers
    ]
    return named, rows


def excess(similarity: np.ndarray) -> np.ndarray:
    """Return S(i, j) - m(|i - j|), [L, L]: similarity beyond the mean at the same distance."""
    return similarity - _band(similarity)


def _band(values: np.ndarray) -> np.ndarray:
    """Return m(|i - j|), [L, L]: the mean of every diagonal, at the places of that diagonal."""
    count = len(values)
    means = np.array([np.diagonal(values, distance).mean() for distance in range(count)])
    rows = np.arange(count)
    return means[np.abs(rows[:, None] - rows)]


def _best_blocks(values: np.ndarray, kept: np.ndarray, clusters: int | None, every: int) -> Blocks:
    found, starts = _best_splits(_cluster_sums(excess(values)))
    room = _cluster_sums(1 - _band(values))
    options = [_edges(starts, count) for count in range(1, len(kept) + 1)]
    scores = [  # the excess of a single cluster is 0, except for rounding
        0.0 if len(edges) == 1 else _score(best, sum(room[a, b] for a, b in edges))
        for best, edges in zip(found, options, strict=True)
    ]
    chosen = clusters if clusters is not None else _choose_count(found, scores)
    edges = options[chosen - 1]
    same = np.zeros(values.shape, bool)
    for a, b in edges:
        same[a:b, a:b] = True
    pairs = np.triu(np.ones(values.shape, bool), 1)
    return Blocks(
        clusters=tuple(tuple(kept[a:b].tolist()) for a, b in edges),
        score=scores[chosen - 1],
        within=_mean(values[pairs & same]),
        between=_mean(values[pairs & ~same]),
        undefined=tuple(sorted(set(range(every)) - set(kept.tolist()))),
        excess_by_count=tuple(found.tolist()),
    )


def _cluster_sums(values: np.ndarray) -> np.ndarray:
    """Return the sums over pairs i < j of layers a, ..., b - 1, for all a and b: [L + 1, L + 1]."""
    count = len(values)
    upper = np.triu(values, 1)
    columns = np.vstack([np.zeros(count), np.cumsum(upper, axis=0)])  # [a, j]: sum of rows before a
    sums = np.zeros((count + 1, count + 1))
    for a in range(count):
        # Layer j adds its pairs with layers a, ..., j - 1: rows a, ..., j - 1 of column j.
        sums[a, a + 1 :] = np.cumsum(columns[count, a:] - columns[a, a:])
    return sums


def _best_splits(gain: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the split into k clusters with the largest sum of `gain`, for every k.

    Returns
    -------
    best, starts
        The largest sums, [L], for k = 1, ..., L; and the first layer of the last cluster,
        [L, L + 1], in column b for a split of the first b layers.
    """
    count = len(gain) - 1
    value = np.full((count, count + 1), -np.inf)
    starts = np.zeros((count, count + 1), np.int64)
    value[0, 1:] = gain[0, 1:]
    for k in range(1, count):
        for b in range(k + 1, count + 1):
            totals = value[k - 1, k:b] + gain[k:b, b]
            starts[k, b] = k + int(np.argmax(totals))
            value[k, b] = totals.max()
    return value[:, count], starts


def _edges(starts: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Return the first layer and the end (exclusive) of each of `count` clusters."""
    edges, end = [], starts.shape[1] - 1
    for k in range(count - 1, -1, -1):
        start = int(starts[k, end])
        edges.append((start, end))
        end = start
    return edges[::-1]


def _score(best: float, room: float) -> float:
    return max(0.0, float(best / room)) if room > 0 else 0.0


def _choose_count(found: np.ndarray, scores: list[float]) -> int:
    """Return the number of clusters, by the criterion in the docstring of this module."""
    largest = found.max()
    if largest <= _ROUNDING * len(found) ** 2:
        return 1
    count = int(np.argmax(found >= ENOUGH * largest)) + 1
    return count if scores[count - 1] >= LOWEST_SCORE else 1


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else float("nan")
