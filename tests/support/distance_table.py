"""Distances, and measures of layers that are not centred, each with its twin.

Tests of their own (tests/grid/test_distances*.py) go through this table, because these measures
have other invariances and units than those of `measure_table.MEASURES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from simcore import reference
from support.cases import Case, layers
from support.measure_table import LINEAR, PERMUTATION, ROTATION, Measure

SCALE, TRANSLATION = frozenset({"scale"}), frozenset({"translation"})
Units = Callable[[list[np.ndarray], list[np.ndarray]], np.ndarray | float]


def _one(x, y) -> float:
    return 1.0


def _twice_the_largest(of_layer: Callable[[np.ndarray], float]) -> Units:
    """Units for a pair of layers from a number of each: twice the larger one."""

    def units(x, y):
        a, b = (np.array([of_layer(layer) for layer in side]) for side in (x, y))
        return 2 * np.maximum(a[:, None], b) + np.finfo(np.float64).tiny

    return units


def _squared_length(x: np.ndarray) -> float:
    return float(np.square(reference.center(x)).sum())


def _longest_row(x: np.ndarray) -> float:
    return 1 + float(np.square(reference.center(x)).sum(axis=1).max())


def _distances_of(norm: str, power: int) -> Units:
    return _twice_the_largest(
        lambda x: float(reference.rsm_difference_grid([x], [x * 0], norm=norm)[0, 0]) ** power
    )


@dataclass(frozen=True)
class Other(Measure):
    """A measure whose values of a layer with itself is ``itself``, and which is symmetric.

    Attributes
    ----------
    invariant
        The changes of either argument alone that leave the value as it is.
    jointly
        The changes of both arguments together that leave the value as it is.
    degree
        The power of a common factor of both arguments that the value has.
    compared
        What errors are judged by: the value, its square, or its cosine.
    units
        What the errors of the compared numbers are relative to.
    size
        A factor of test layers that brings values to where they say something.
    undefined
        Layers without a value: those without variance, those of zeros, or none.
    """

    takes_bases: bool = False
    rank_rule: bool = False
    itself: float = 0.0
    invariant: frozenset[str] = TRANSLATION | ROTATION
    jointly: frozenset[str] = frozenset()
    degree: int = 0
    compared: Callable[[np.ndarray], np.ndarray] = np.asarray
    units: Units = _one
    undefined: str = "none"
    equal_widths: bool = False
    size: float = 1.0

    def layers(self, case: Case, dtype=torch.float64, *, seed=0) -> list[torch.Tensor]:
        """`cases.layers` times ``size``, all five wide if the measure asks for equal widths."""
        widths = (5,) * len(case.widths) if self.equal_widths else case.widths
        drawn = layers(Case(case.n, case.offset, case.outlier, widths), dtype, seed=seed)
        return [layer * self.size for layer in drawn]

    def sides(self, n=60, dtype=torch.float64, offset=0.0):
        """Two sides of layers of n rows, three and two."""
        x = self.layers(Case(n, offset, widths=(9, 6, 17)), dtype)
        return x, self.layers(Case(n, widths=(9, 5)), dtype, seed=1)


_MATCHED = PERMUTATION | SCALE
_MATCHING = (
    Other(
        "match-best",
        "matching_grid",
        {"matching": "best"},
        itself=1.0,
        invariant=_MATCHED | TRANSLATION,
        undefined="variance",
    ),
    Other(
        "match-one-to-one",
        "matching_grid",
        itself=1.0,
        invariant=_MATCHED | TRANSLATION,
        undefined="variance",
    ),
    Other(
        "permutation-distance",
        "matching_grid",
        {"score": "distance"},
        invariant=PERMUTATION,
        degree=1,
        compared=np.square,
        units=_twice_the_largest(lambda x: float(np.square(x).sum())),
    ),
    Other(
        "permutation-angular",
        "matching_grid",
        {"score": "angular"},
        invariant=_MATCHED,
        compared=np.cos,
        undefined="zeros",
    ),
    Other(
        "aligned-cosine",
        "aligned_cosine_grid",
        itself=1.0,
        invariant=ROTATION | SCALE,
        undefined="zeros",
        units=lambda x, y: 10.0,  # a decomposition in float32
    ),
)
_SHAPE = {"rank_rule": False, "takes_bases": True}
DISTANCE_ROWS = (
    Other(
        "procrustes-distance",
        "procrustes_grid",
        {"form": "distance"},
        **_SHAPE,
        invariant=TRANSLATION | ROTATION | SCALE,
        compared=np.square,
        undefined="variance",
    ),
    Other(
        "procrustes-angular",
        "procrustes_grid",
        {"form": "angular"},
        **_SHAPE,
        invariant=TRANSLATION | ROTATION | SCALE,
        compared=np.cos,
        undefined="variance",
    ),
    Other(
        "size-and-shape",
        "procrustes_grid",
        {"form": "size-and-shape"},
        **_SHAPE,
        degree=1,
        compared=np.square,
        units=_twice_the_largest(_squared_length),
    ),
    Other(
        "distance-correlation",
        "distance_correlation_grid",
        itself=1.0,
        invariant=TRANSLATION | ROTATION | SCALE,
        undefined="variance",
    ),
    Other(
        "rsm-difference",
        "rsm_difference_grid",
        degree=1,
        compared=np.square,
        units=_distances_of("frobenius", 2),
    ),
    Other(
        "rsm-difference-spectral",
        "rsm_difference_grid",
        {"norm": "spectral"},
        degree=1,
        units=_distances_of("spectral", 1),
    ),
    Other(
        "gulp",
        "gulp_grid",
        {"ridge": 0.03},
        takes_bases=True,
        rank_rule=True,
        invariant=TRANSLATION | ROTATION | SCALE,
        units=lambda x, y: float(max(min(t.shape) for t in x + y)),
        undefined="variance",
    ),
    Other(
        "gulp-without-ridge",
        "gulp_grid",
        takes_bases=True,
        rank_rule=True,
        invariant=TRANSLATION | LINEAR | SCALE,
        units=lambda x, y: float(max(min(t.shape) for t in x + y)),
        undefined="variance",
    ),
    Other(
        "eigenspace-overlap",
        "eigenspace_overlap_grid",
        rank_rule=True,
        itself=1.0,
        invariant=LINEAR | SCALE,
        undefined="zeros",
    ),
    Other(
        "cosine",
        "cosine_grid",
        itself=1.0,
        invariant=SCALE,
        jointly=ROTATION,
        undefined="zeros",
        equal_widths=True,
    ),
    Other(
        "angular",
        "cosine_grid",
        {"form": "angular"},
        invariant=SCALE,
        jointly=ROTATION,
        undefined="zeros",
        equal_widths=True,
    ),
    Other(
        "magnitude",
        "descriptor_grid",
        {"descriptor": "magnitude"},
        rank_rule=True,
        invariant=ROTATION,
        degree=1,
        units=_twice_the_largest(lambda x: float(np.linalg.norm(x.mean(axis=0)))),
    ),
    Other(
        "concentricity",
        "descriptor_grid",
        {"descriptor": "concentricity"},
        rank_rule=True,
        invariant=ROTATION | SCALE,
        undefined="zeros",
    ),
    Other(
        "uniformity",
        "descriptor_grid",
        {"descriptor": "uniformity"},
        rank_rule=True,
        size=0.2,
        units=_twice_the_largest(_longest_row),
    ),
    *_MATCHING,
    Other("disagreement", "disagreement_grid", invariant=SCALE, equal_widths=True),
    Other(
        "output-divergence",
        "output_divergence_grid",
        invariant=frozenset(),
        jointly=PERMUTATION,
        equal_widths=True,
    ),
)
