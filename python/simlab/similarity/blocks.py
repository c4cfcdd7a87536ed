"""Score how block diagonal the stored grids of layers are (Phang et al. 2021, sections 3 and 4).

Layers of a fine-tuned model often form clusters of consecutive layers that are similar within a
cluster and dissimilar between clusters. But neighbouring layers are always more alike than distant
layers, so the similarity within clusters is compared with the mean similarity at the same distance.

Let S be the L x L similarities of the layers of one model, and m(d) the mean of S(i, j) over all
pairs with |i - j| = d. A split of the layers into clusters of consecutive layers has

    score = sum of S(i, j) - m(j - i) / sum of 1 - m(j - i),  over pairs i < j in the same cluster

The score is the share of the way from m(d) to 1 that the similarity of pairs within clusters has
gone: 1 for perfect blocks (S is 1 within them), and 0 if similarity depends on distance alone, as
in a constant matrix and in any band matrix. The score does not depend on the scale of 1 - S, so
models, tasks and errors of maps (S = 1 - error) can be compared.

The score of a grid at k clusters is the largest score of any split into k clusters. A small change
of S changes it by little, because it is the maximum of functions that are continuous in S; no score
is cut off. All C(L - 1, k - 1) splits are tried.

*Chance* at k clusters is the mean score at k of grids whose values are permuted within each band
|i - j| = d. They keep all m(d), and have no blocks. More clusters mean more splits to choose from
and fewer, nearer pairs in clusters, so that score and chance both grow with k.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from itertools import permutations as orders
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.bounds import Clusters, Count, FromZero, bounded
from simlab.errors import UserError
from simlab.results.reading import read_results, results_files
from simlab.results.results import (
    BLOCK_SCORE,
    BLOCKS,
    GRID_COLUMNS,
    GRIDS,
    ResultRow,
    ensure_results,
    hash_rows,
    side_in,
)
from simlab.results.tables import require_table_file
from simlab.similarity.catalogue import MEASURES
from simlab.similarity.resampling import Resampling
from simlab.store.files import as_paths
from simlab.store.jobs import Outcome

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

PERMUTATIONS = 200
MOST_COUNTED = 6  # layers, whose bands have 34,560 permutations; seven have 25 million
CLUSTERS = 2  # earlier and later layers, as Phang et al. 2021 see them
_DISTANCES = [name for name, measure in MEASURES.items() if measure.distance]
# A mean similarity that is nearer to 1 than this counts as so near: rounding of a similarity of
# float32 layers is then no score.
_LEAST_ROOM = 1e-6
_TIE = 1e-9  # scores that differ by less are equal, up to the order of summation


@dataclass(frozen=True)
class Blocks:
    """The best split of the layers of one model.

    Attributes
    ----------
    clusters
        For each cluster, the numbers of its layers in rising order (rows of the matrix).
    score
        How block diagonal the matrix is, at most 1.
    chance, pvalue, calibrated
        The mean score of permuted grids; the share of permuted grids whose score is as large; and
        the score with chance removed, 0 at chance and 1 at most.
    within, between
        Mean similarity of pairs of layers in the same cluster and in different clusters; nan if
        there are no such pairs.
    undefined
        Layers that are in no cluster, because their similarities are nan.
    """

    clusters: tuple[tuple[int, ...], ...]
    score: float
    chance: float
    pvalue: float
    calibrated: float
    within: float
    between: float
    undefined: tuple[int, ...]


@bounded
def blocks(
    results: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    clusters: Clusters = CLUSTERS,
    *,
    permutations: Count = PERMUTATIONS,
    resampling_seed: FromZero = 0,
    overwrite: bool = False,
    tell: Callable[[Outcome], None] = lambda _: None,
) -> list[tuple[Blocks, list[ResultRow]]]:
    """Split the layers of every grid of a model with itself into clusters, and score the split.

    Parameters
    ----------
    results
        Results files with grids, or folders of results files.
    out
        Results file (.parquet) for clusters and scores; `simcore plot` outlines the clusters.
    clusters
        Number of clusters.
    permutations
        Grids to draw for chance and p-values: the same similarities at each distance, in any order.
    resampling_seed
        Seed of `permutations`.
    overwrite
        As for `truncate`.
    tell
        Function that is called with the outcome of `out`.

    Returns
    -------
    list of (Blocks, list of ResultRow)
        For each grid, its blocks with the rows for the results table (`block_rows`).

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
    >>> ((two, _),) = blocks("runs/results/orig.parquet")
    >>> len(two.clusters), two.score <= 1
    (2, True)
    """
    path = None if out is None else Path(out)
    if path is not None:
        require_table_file(path)
    files = results_files(as_paths(results))
    # Blocks may be written beside the grids, and are read again with them.
    frame = read_results([f for f in files if path is None or f.resolve() != path.resolve()])
    splits = list(block_rows(frame, clusters, permutations, resampling_seed))
    if path is not None:
        drawn = permutations, resampling_seed
        tell(ensure_blocks(path, frame, clusters, *drawn, splits, replace=overwrite))
    return splits


def ensure_blocks(
    path: Path,
    frame: pd.DataFrame,
    clusters: int = CLUSTERS,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
    splits: Iterable[tuple[Blocks, list[ResultRow]]] | None = None,
    *,
    replace: bool = False,
) -> Outcome:
    """Write the rows of `block_rows` to `path`, unless `path` was written from the same inputs.

    `splits` is the result of `block_rows`, if it is computed already.
    """
    inputs = {
        "step": BLOCKS,
        "results": hash_rows(frame),
        "clusters": clusters,
        "permutations": permutations,
        "seed": seed,
    }

    def make() -> Iterator[ResultRow]:
        for _, rows in splits or block_rows(frame, clusters, permutations, seed):
            yield from rows

    return ensure_results(path, inputs, make, replace=replace)


def block_rows(
    frame: pd.DataFrame, clusters: int = CLUSTERS, permutations: int = PERMUTATIONS, seed: int = 0
) -> Iterator[tuple[Blocks, list[ResultRow]]]:
    """Score every grid of a model with itself in a results table; distances are no similarities.

    Each grid gives its blocks with a row for the score, which has no layer, and a row for each
    layer, whose value is the number of its cluster from 1 (nan if the layer is undefined).
    """
    import pandas as pd

    # Two models without a seed are the same model if they have the same name.
    is_own = frame["label_x"] == frame["label_y"]
    for name in ("seed", "step"):
        is_own &= frame[f"{name}_x"].fillna(-1) == frame[f"{name}_y"].fillna(-1)
    is_own &= frame["experiment"].isin(GRIDS) & ~frame["measure"].isin(_DISTANCES)
    grids = frame[is_own].drop_duplicates([*GRID_COLUMNS, "layer_x", "layer_y"])
    if grids.empty:
        names = frame["comparison"].fillna(frame["experiment"])
        stored = ", ".join(dict.fromkeys(names)) or "an empty table"
        raise UserError(f"results: wanted a grid of a model with itself (FT-FT), found {stored}")
    for _, rows in grids.groupby(list(GRID_COLUMNS), dropna=False, sort=False):
        table = rows.pivot(index="layer_x", columns="layer_y", values="value")
        table, first = table.sort_index().sort_index(axis=1), rows.iloc[0]
        try:
            split = find_blocks(table.to_numpy(), clusters, permutations=permutations, seed=seed)
        except ValueError as error:
            raise UserError(f"results, grid of {first['label_x']}: {error}") from None
        layers = [int(layer) for layer in table.index]
        split = dataclasses.replace(
            split,
            clusters=tuple(tuple(layers[row] for row in cluster) for cluster in split.clusters),
            undefined=tuple(layers[row] for row in split.undefined),
        )
        common: dict[str, Any] = {
            name: None if pd.isna(first[name]) else first[name] for name in GRID_COLUMNS
        } | side_in(first).columns()
        numbers = {
            layer: float(number)
            for number, cluster in enumerate(split.clusters, 1)
            for layer in cluster
        }
        score = ResultRow(
            experiment=BLOCK_SCORE,
            value=split.score,
            pvalue=split.pvalue,
            calibrated=split.calibrated,
            resampling=Resampling(permutations=permutations, seed=seed).record,
            **common,
        )
        members = [
            ResultRow(experiment=BLOCKS, layer_x=layer, value=numbers.get(layer, nan), **common)
            for layer in layers
        ]
        yield split, [score, *members]


def find_blocks(
    similarity: ArrayLike,
    clusters: int,
    *,
    permutations: int = PERMUTATIONS,  # grids that chance and the p-value come from
    seed: int = 0,
) -> Blocks:
    """Split the layers of `similarity` [L, L] into the best clusters of consecutive layers.

    The diagonal is not used, an asymmetric measure is averaged over both directions, and a layer
    whose whole row is nan is left out (CLS at the embedding output never varies).
    """
    matrix = np.asarray(similarity, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"similarity: wanted a square matrix [L, L], found shape {matrix.shape}")
    layers = np.flatnonzero(~np.isnan(matrix).all(axis=1))
    if len(layers) < 2:
        raise ValueError(f"similarity: wanted 2 rows with values or more, found {len(layers)}")
    values = matrix[np.ix_(layers, layers)]
    if not np.isfinite(values).all():
        raise ValueError("similarity: wanted finite values, or nan in whole rows and columns")
    values = (values + values.T) / 2
    if not 2 <= clusters <= len(layers):
        raise ValueError(f"clusters: wanted 2 to {len(layers)} defined layers, found {clusters}")
    drawn = permute_bands(values, permutations, np.random.default_rng(seed))
    scores, starts = largest_scores(np.concatenate([values[None], drawn]), clusters)
    score, chance = scores[0], scores[1:].mean()
    cluster = np.searchsorted(starts[0], np.arange(len(layers)), side="right") - 1
    same = cluster[:, None] == cluster
    pairs = np.triu(np.ones(values.shape, bool), 1)
    return Blocks(
        clusters=tuple(tuple(layers[cluster == c].tolist()) for c in range(clusters)),
        score=float(score),
        chance=float(chance),
        pvalue=float((1 + np.sum(scores[1:] >= score - _TIE)) / len(scores)),
        # If every permuted grid has the score 1 too, the grid is at chance.
        calibrated=float((score - chance) / (1 - chance)) if 1 - chance > _TIE else 0.0,
        within=_mean(values[pairs & same]),
        between=_mean(values[pairs & ~same]),
        undefined=tuple(sorted({*range(len(matrix))} - {*layers.tolist()})),
    )


def permute_bands(values: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return grids [count, L, L] whose values are permuted within each band |i - j| = d."""
    grids = np.repeat(values[None], count, axis=0)
    for distance in range(1, len(values)):
        rows = np.arange(len(values) - distance)
        drawn = np.tile(np.diagonal(values, distance), (count, 1))
        rng.permuted(drawn, axis=1, out=drawn)
        grids[:, rows, rows + distance] = grids[:, rows + distance, rows] = drawn
    return grids


def pvalue_of_split(
    similarity: ArrayLike, clusters: int, *, draws: int = 2000, seed: int = 0
) -> float:
    """Return the share of the permuted grids whose largest score is as large as the grid's.

    Up to `MOST_COUNTED` layers, every permutation within the bands is counted. With more layers,
    `draws` of them are drawn, and the grid itself is counted as one more.
    """
    found = find_blocks(similarity, clusters, permutations=draws, seed=seed)
    layers = [layer for cluster in found.clusters for layer in cluster]
    if len(layers) > MOST_COUNTED:
        return found.pvalue
    values = np.asarray(similarity, np.float64)[np.ix_(layers, layers)]
    values = (values + values.T) / 2
    scores, _ = largest_scores(every_permutation(values), clusters)
    return float(np.mean(scores >= scores[0] - _TIE))


def every_permutation(values: np.ndarray) -> np.ndarray:
    """Return all grids whose values are permuted within each band, the grid itself first."""
    bands = [np.array([*orders(np.diagonal(values, d))]) for d in range(1, len(values))]
    # One choice of a permutation of each band makes a grid.
    choices = np.indices([len(band) for band in bands]).reshape(len(bands), -1)
    grids = np.repeat(values[None], choices.shape[1], axis=0)
    for distance, (band, chosen) in enumerate(zip(bands, choices, strict=True), 1):
        rows = np.arange(len(values) - distance)
        grids[:, rows, rows + distance] = grids[:, rows + distance, rows] = band[chosen]
    return grids


def largest_scores(grids: np.ndarray, clusters: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the split into `clusters` clusters with the largest score, for every symmetric grid.

    `grids` is [draws, L, L]; return the scores [draws], and the first layer of each cluster,
    [draws, clusters]. The score of clusters of one layer each, which have no pairs, is 0.
    """
    count = grids.shape[-1]
    x, y = np.triu_indices(count, 1)
    values, distance = grids[:, x, y], y - x  # values: [draws, pairs]
    bands = [values[:, distance == d].mean(axis=1) for d in range(1, count)]
    band = np.stack(bands, axis=1)[:, distance - 1]  # [draws, pairs]
    starts = np.array([(0, *cuts) for cuts in combinations(range(1, count), clusters - 1)])
    # The cluster of a layer is the number of clusters that have begun: [splits, L].
    cluster = (starts[:, :, None] <= np.arange(count)).sum(axis=1)
    same = (cluster[:, x] == cluster[:, y]).T.astype(float)  # [pairs, splits]
    gain, room = (values - band) @ same, np.maximum(1 - band, _LEAST_ROOM) @ same
    scores = np.divide(gain, room, out=np.zeros_like(gain), where=room > 0)  # [draws, splits]
    largest = scores.max(axis=1)
    return largest, starts[np.argmax(scores >= largest[:, None] - _TIE, axis=1)]


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else nan
