"""The measures of neighbours, which need no centring: their twins and invariances."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from support.cases import Case, layers
from support.measure_table import ROTATION, Measure

SCALE, TRANSLATION = frozenset({"scale"}), frozenset({"translation"})
ROW_LENGTHS = frozenset({"row lengths"})  # a factor of its own for each row


@dataclass(frozen=True)
class Neighbourly(Measure):
    """A measure whose value of a layer with itself is 1."""

    takes_bases: bool = False
    rank_rule: bool = True  # the twin takes eps, which decides whether directions differ
    # Changes of one argument that leave the value as it is.
    invariant: frozenset[str] = SCALE | ROTATION
    condition: float = 1.0  # times its relative bound that float64 is allowed at a common offset

    def sides(self, n=60, dtype=torch.float64, offset=0.5):
        """Two sides of layers of n rows, three and two."""
        x = layers(Case(n, offset, widths=(9, 6, 17)), dtype)
        return x, layers(Case(n, widths=(9, 5)), dtype, seed=1)


COSINE, EUCLIDEAN = SCALE | ROTATION | ROW_LENGTHS, SCALE | ROTATION | TRANSLATION


def _knn(measure, invariant=COSINE, **options):
    name = "-".join([measure, *map(str, options.values())])
    return Neighbourly(name, "knn_grid", {"measure": measure, **options}, invariant=invariant)


MUTUAL, CKNNA = _knn("mutual", k=4), Neighbourly("cknna", "cknna_grid", {"k": 4}, False, False)
NEIGHBOUR_ROWS = (
    MUTUAL,
    _knn("mutual", EUCLIDEAN, k=10, metric="euclidean"),
    _knn("mutual", SCALE | ROTATION, k=3, metric="inner"),
    _knn("jaccard", k=5),
    _knn("jaccard", EUCLIDEAN, k=1, metric="euclidean"),
    _knn("rank", k=5),
    _knn("rank", SCALE | ROTATION, k=20, metric="inner"),
    _knn("second-order", k=5),
    CKNNA,
    # Masked Grams of rows with an offset cancel, to first order, in the estimator with means.
    Neighbourly("cknna-biased", "cknna_grid", {"k": 4, "estimator": "biased"}, rank_rule=False,
                condition=1e3),
)  # fmt: skip
