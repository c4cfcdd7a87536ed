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
is cut off. Dinkelbach's iteration finds the split exactly: for a given ratio r, dynamic programming
over the start of the last cluster finds the split with the largest numerator minus r times
denominator, whose score is the next r.

*Chance* at k clusters is the mean score at k of grids whose values are permuted within each band
|i - j| = d. They keep all m(d), and have no blocks. More clusters mean more splits to choose from
and fewer, nearer pairs in clusters, so that score and chance both grow with k. The *best* number of
clusters is therefore the k from 2 to L / 2 whose score lies the furthest above chance, relative to
the room above chance, (score - chance) / (1 - chance); the smallest such k if there are several.
The p-value of the best k counts permuted grids that reach this at their own best k.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations
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
_MOST_STEPS = 50  # of Dinkelbach's iteration, which takes 3 to 6


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
    low, high
        Bounds of the 95 % interval of the score; nan if there is none.
    """

    clusters: tuple[tuple[int, ...], ...]
    score: float
    chance: float
    pvalue: float
    calibrated: float
    within: float
    between: float
    undefined: tuple[int, ...]
    low: float = nan
    high: float = nan


def find_blocks(
    similarity: ArrayLike,
    clusters: int | None = None,
    *,
    permutations: int = PERMUTATIONS,  # grids that chance and the p-value come from
    seed: int = 0,
) -> Blocks:
    """Split the layers of `similarity` [L, L] into the best clusters of consecutive layers.

    The diagonal is not used, an asymmetric measure is averaged over both directions, and a layer
    whose whole row is nan is left out (CLS at the embedding output never varies). If `clusters` is
    None, the number of clusters is the best by the criterion in the docstring of this module.
    """
    scores = GridScores(similarity, permutations=permutations, seed=seed)
    return scores.best() if clusters is None else scores.at(clusters)


@dataclass
class GridScores:
    """The scores of a grid, and of permuted grids, at any number of clusters; see `find_blocks`."""

    similarity: ArrayLike
    permutations: int = PERMUTATIONS
    seed: int = 0
    kept: np.ndarray = field(init=False)
    _scores: dict[int, tuple[np.ndarray, np.ndarray]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Check the grid, and permute it."""
        matrix = np.asarray(self.similarity, np.float64)
        self.kept, self.values = _defined(matrix)
        self.undefined = tuple(sorted(set(range(len(matrix))) - set(self.kept.tolist())))
        if self.permutations < 1:
            raise ValueError(f"permutations: wanted at least 1, found {self.permutations}")
        rng = np.random.default_rng(self.seed)
        self.grids = np.concatenate(
            [self.values[None], permute_bands(self.values, self.permutations, rng)]
        )

    def at(self, clusters: int) -> Blocks:
        """Return the split into this number of clusters with the largest score."""
        scores, starts = self._at(clusters)
        pvalue = (1 + np.sum(scores[1:] >= scores[0] - _TIE)) / (1 + self.permutations)
        return self._blocks(clusters, scores, starts[0], float(pvalue))

    def best(self) -> Blocks:
        """Return the split into the best number of clusters."""
        counts = range(2, max(2, len(self.values) // 2) + 1)
        above = np.stack([_above_chance(self._at(count)[0]) for count in counts])
        largest = above.max(axis=0)
        clusters = counts[int(np.argmax(above[:, 0] >= largest[0] - _TIE))]
        pvalue = (1 + np.sum(largest[1:] >= largest[0] - _TIE)) / (1 + self.permutations)
        scores, starts = self._at(clusters)
        return self._blocks(clusters, scores, starts[0], float(pvalue))

    def of_grids(self, grids: np.ndarray, clusters: int) -> np.ndarray:
        """Return the scores [draws] of other grids [draws, L, L] of the same layers."""
        defined = grids[:, self.kept][:, :, self.kept]
        return largest_scores((defined + defined.swapaxes(1, 2)) / 2, clusters)[0]

    def _at(self, clusters: int) -> tuple[np.ndarray, np.ndarray]:
        layers = len(self.values)
        if not 2 <= clusters <= layers:
            raise ValueError(f"clusters: wanted 2 to {layers} defined layers, found {clusters}")
        if clusters not in self._scores:
            self._scores[clusters] = largest_scores(self.grids, clusters)
        return self._scores[clusters]

    def _blocks(
        self, clusters: int, scores: np.ndarray, starts: np.ndarray, pvalue: float
    ) -> Blocks:
        cluster = np.searchsorted(starts, np.arange(len(self.values)), side="right") - 1
        same = cluster[:, None] == cluster
        pairs = np.triu(np.ones(self.values.shape, bool), 1)
        return Blocks(
            clusters=tuple(tuple(self.kept[cluster == c].tolist()) for c in range(clusters)),
            score=float(scores[0]),
            chance=float(scores[1:].mean()),
            pvalue=pvalue,
            calibrated=float(_above_chance(scores)[0]),
            within=_mean(self.values[pairs & same]),
            between=_mean(self.values[pairs & ~same]),
            undefined=self.undefined,
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
    band = _band(grids)
    gain, room = cluster_sums(grids - band), cluster_sums(np.maximum(1 - band, _LEAST_ROOM))
    scores = np.zeros(len(grids))
    for _ in range(_MOST_STEPS):
        starts = _best_splits(gain - scores[:, None, None] * room, clusters)
        before, room_within = scores, _sum_within(room, starts)
        scores = _sum_within(gain, starts) / np.where(room_within > 0, room_within, 1)
        if np.abs(scores - before).max() <= _TIE:
            break
    return scores, starts


def _band(grids: np.ndarray) -> np.ndarray:
    """Return m(|i - j|), [draws, L, L]: the mean of each band, at the places of that band."""
    count = grids.shape[-1]
    means = [np.diagonal(grids, d, axis1=1, axis2=2).mean(axis=1) for d in range(count)]
    rows = np.arange(count)
    return np.stack(means, axis=1)[:, np.abs(rows[:, None] - rows)]


def cluster_sums(values: np.ndarray) -> np.ndarray:
    """Return the sums over pairs i < j of layers a, ..., b - 1, for all a and b: [..., a, b]."""
    draws, count = values.shape[:-2], values.shape[-1]
    upper = np.triu(values, 1)
    # [..., a, j]: sum of rows before a.
    columns = np.concatenate([np.zeros((*draws, 1, count)), np.cumsum(upper, axis=-2)], axis=-2)
    sums = np.zeros((*draws, count + 1, count + 1))
    for a in range(count):
        # Layer j adds its pairs with layers a, ..., j - 1: rows a, ..., j - 1 of column j.
        added = columns[..., count, a:] - columns[..., a, a:]
        sums[..., a, a + 1 :] = np.cumsum(added, axis=-1)
    return sums


def _best_splits(gain: np.ndarray, clusters: int) -> np.ndarray:
    """Return the starts [draws, clusters] of the split with the largest sum of `gain`."""
    draws, count = np.arange(len(gain)), gain.shape[-1] - 1
    value = np.full((len(gain), count + 1), -np.inf)
    value[:, 1:] = gain[:, 0, 1:]
    last = np.zeros((clusters, len(gain), count + 1), np.int64)  # start of the last cluster
    for k in range(1, clusters):
        longer = np.full_like(value, -np.inf)
        for b in range(k + 1, count + 1):
            # The last of k + 1 clusters begins at a layer from k to b - 1 and ends before layer b.
            totals = value[:, k:b] + gain[:, k:b, b]
            place = totals.argmax(axis=1)
            last[k, :, b], longer[:, b] = k + place, totals[draws, place]
        value = longer
    starts = np.zeros((len(gain), clusters), np.int64)
    end = np.full(len(gain), count)
    for k in range(clusters - 1, 0, -1):
        starts[:, k] = end = last[k, draws, end]
    return starts


def _sum_within(sums: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the sums [draws] of `cluster_sums` over the clusters that begin at `starts`."""
    ends = np.concatenate([starts[:, 1:], np.full((len(starts), 1), sums.shape[-1] - 1)], axis=1)
    return sums[np.arange(len(sums))[:, None], starts, ends].sum(axis=1)


def _above_chance(scores: np.ndarray) -> np.ndarray:
    """Return (score - chance) / (1 - chance) of a grid's scores and its permuted grids'.

    If every permuted grid has the score 1 too, the grid is at chance.
    """
    chance = scores[1:].mean()
    return (scores - chance) / (1 - chance) if 1 - chance > _TIE else np.zeros_like(scores)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else nan
