"""Distances, and measures of layers that are not centred, each with its twin.

Tests of their own (tests/grid/test_distances*.py) go through this table, because these measures
have other invariances and units than those of `measure_table.MEASURES`. Every measure with a record
has a row here, unless `TESTED_APART` says which other test compares it with its twin.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from simcore import reference
from simcore._measures import MEASURES
from simcore._measures.record import BASES, closure
from simcore._measures.record import Measure as Record
from support import measure_table, tolerance
from support.cases import Case, exact, layers
from support.measure_table import ROTATION, Measure

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
    """A measure whose values of a layer with itself is ``itself``, and which is symmetric."""

    takes_bases: bool = False
    rank_rule: bool = False
    itself: float = 0.0
    # Changes of one argument that leave the value as it is.
    invariant: frozenset[str] = TRANSLATION | ROTATION
    degree: int = 0  # the power of a common factor of both that the value has
    # Errors are of the value, its square, or its cosine.
    compared: Callable[[np.ndarray], np.ndarray] = np.asarray
    units: Units = _one  # what errors are relative to
    undefined: str = "none"  # layers without a value: of `variance`, of `zeros`, or `none`
    equal_widths: bool = False
    size: float = 1.0  # a factor of test layers with which values say something

    def assert_like(self, got, want, x, y, dtype, condition=1.0) -> None:
        tolerance.assert_other(self, got, want, exact(x), exact(y), dtype, condition)

    def layers(self, case: Case, dtype=torch.float64, *, seed=0) -> list[torch.Tensor]:
        """`cases.layers` times ``size``, all five wide if the measure asks for equal widths."""
        widths = (5,) * len(case.widths) if self.equal_widths else case.widths
        drawn = layers(Case(case.n, case.offset, case.outlier, widths), dtype, seed=seed)
        return [layer * self.size for layer in drawn]

    def sides(self, n=60, dtype=torch.float64, offset=0.0):
        """Two sides of layers of n rows, three and two."""
        x = self.layers(Case(n, offset, widths=(9, 6, 17)), dtype)
        return x, self.layers(Case(n, widths=(9, 5)), dtype, seed=1)


# Changes of layers as the records name them, and as the tests of invariances do.
KINDS = {
    "translation": "translation",
    "isotropic scaling": "scale",
    "scaling of neurons": "neurons",
    "signs of neurons": "signs",
    "permutation of neurons": "permutation",
    "orthogonal map": "rotation",
    "invertible linear map": "linear",
    "scaling of logits": "scale",
}
# Measures that other tests compare with their twins.
TESTED_APART = {
    **dict.fromkeys(("cka", "hsic"), "tests/hsic/test_cka.py"),
    **dict.fromkeys((row.name for row in measure_table.MEASURES), "tests/support/measure_table.py"),
    **dict.fromkeys(
        ("knn-mutual", "knn-jaccard", "knn-rank", "knn-second-order", "cknna"),
        "tests/support/neighbour_table.py",
    ),
    **dict.fromkeys(("match-transport", "transport-distance"), "tests/neurons/test_matching.py"),
    "imd": "tests/neighbours/test_imd.py",
    "rtd": "tests/neighbours/test_topology.py",
    **dict.fromkeys(
        ("attention-js", "attention-pearson", "attention-frobenius"),
        "tests/attention/test_attention.py",
    ),
}


def _as_wide_as_the_layers(x, y) -> float:
    return float(max(min(t.shape) for t in x + y))


# What only the tests know of a measure: how its errors are judged. By default a value is off by its
# own rounding error.
JUDGED: dict[str, dict[str, Any]] = {
    "cka-angular": {"compared": np.cos},
    "procrustes-distance": {"compared": np.square},
    "procrustes-angular": {"compared": np.cos},
    "size-and-shape": {"compared": np.square, "units": _twice_the_largest(_squared_length)},
    "rsm-difference": {"compared": np.square, "units": _distances_of("frobenius", 2)},
    "gulp": {"units": _as_wide_as_the_layers},
    "magnitude": {"units": _twice_the_largest(lambda x: float(np.linalg.norm(x.mean(axis=0))))},
    "uniformity": {"size": 0.2, "units": _twice_the_largest(_longest_row)},
    "permutation-procrustes": {
        "compared": np.square,
        "units": _twice_the_largest(lambda x: float(np.square(x).sum())),
    },
    "permutation-angular": {"compared": np.cos},
    "aligned-cosine": {
        "rank_rule": False,
        "units": lambda x, y: 10.0,  # a decomposition in float32
    },
}


def _kinds(changes: tuple[str, ...]) -> frozenset[str]:
    """Return the names of the tests; their scaling of neurons changes signs too."""
    found = {KINDS[change] for change in closure(changes) if change in KINDS}
    return frozenset(found if "signs" in found else found - {"neurons"})


def row_of(record: Record) -> Other:
    """Return the row of a measure; its twin tells whether there is a rule of rank."""
    twin = getattr(reference, record.function)
    traits: dict[str, Any] = {
        "rank_rule": "eps" in inspect.signature(twin).parameters,
        "takes_bases": record.precomputed == BASES,
        "itself": 0.0 if record.distance else 1.0,
        "invariant": _kinds(record.invariant),
        "jointly": _kinds(record.jointly),
        "degree": record.degree or 0,
        "undefined": record.undefined,
        "equal_widths": record.equal_widths,
        "min_rows": record.least_rows,
    }
    judged = JUDGED.get(record.name, {})
    return Other(record.name, record.function, dict(record.fixed), **{**traits, **judged})


def _all_rows() -> Iterator[Other]:
    for name, record in MEASURES.items():
        if name in TESTED_APART:
            continue
        row = row_of(record)
        yield row
        if name == "rsm-difference":
            yield replace(
                row,
                name="rsm-difference-spectral",
                options={"norm": "spectral"},
                compared=np.asarray,
                units=_distances_of("spectral", 1),
            )
        if name == "gulp":
            ridge = _kinds(("translation", "isotropic scaling", "orthogonal map"))
            yield replace(row, name="gulp-ridge", options={"ridge": 0.03}, invariant=ridge)


DISTANCE_ROWS = tuple(_all_rows())
