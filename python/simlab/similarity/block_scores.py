"""Score how block diagonal a grid of layers is (Phang et al. 2021, sections 3 and 4).

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

from dataclasses import dataclass
from itertools import combinations, permutations
from math import nan
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

PERMUTATIONS = 200
MOST_COUNTED = 6  # layers, whose bands have 34,560 permutations; seven have 25 million
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
    layers, values = _defined(matrix)
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


def _defined(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the defined layers, and their similarities, symmetric."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"similarity: wanted a square matrix [L, L], found shape {matrix.shape}")
    defined = np.flatnonzero(~np.isnan(matrix).all(axis=1))
    if len(defined) < 2:
        raise ValueError(f"similarity: wanted 2 rows with values or more, found {len(defined)}")
    values = matrix[np.ix_(defined, defined)]
    if not np.isfinite(values).all():
        raise ValueError("similarity: wanted finite values, or nan in whole rows and columns")
    return defined, (values + values.T) / 2


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
    _, values = _defined(np.asarray(similarity, np.float64))
    if len(values) > MOST_COUNTED:
        return find_blocks(values, clusters, permutations=draws, seed=seed).pvalue
    scores, _ = largest_scores(every_permutation(values), clusters)
    return float(np.mean(scores >= scores[0] - _TIE))


def every_permutation(values: np.ndarray) -> np.ndarray:
    """Return all grids whose values are permuted within each band, the grid itself first."""
    bands = [np.array([*permutations(np.diagonal(values, d))]) for d in range(1, len(values))]
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
