"""The measures beside CKA, each with its twin: the one table that their tests go through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

import simcore
from simcore import reference
from support import tolerance
from support.cases import Case, exact, layers

# Changes to the neurons of a layer, by name; a set contains the names of the changes within it.
PERMUTATION = frozenset({"permutation"})
SIGNS = PERMUTATION | {"signs"}
NEURONS = SIGNS | {"neurons"}  # permutation, sign and scale
ROTATION = SIGNS | {"rotation"}
LINEAR = NEURONS | ROTATION | {"linear"}

# Grids whose values have gradients.
DIFFERENTIABLE = (
    *("cka_grid", "hsic_grid", "procrustes_grid", "rsa_grid"),
    *("distance_correlation_grid", "cosine_grid"),
)


@dataclass(frozen=True)
class Measure:
    """A grid function with options, its twin, and its invariances.

    ``invariant_x`` and ``invariant_y`` name the changes to the neurons of either argument that
    leave the value as it is, beside translation and isotropic scaling, which never change it.
    """

    name: str
    function: str
    options: dict[str, Any] = field(default_factory=dict)
    symmetric: bool = True
    rank_rule: bool = True  # the twin takes eps
    takes_bases: bool = True
    min_rows: int = 2  # with fewer rows the value is undefined, or decided by rounding
    min_width: int = 1
    any_translation: bool = True  # RSA centres rows: it ignores a common offset only
    invariant_x: frozenset[str] = LINEAR
    invariant_y: frozenset[str] = LINEAR
    jointly: frozenset[str] = frozenset()  # of both arguments together

    @property
    def grid(self) -> Callable[..., Any]:
        return getattr(simcore, self.function)

    @property
    def differentiable(self) -> bool:
        return self.function in DIFFERENTIABLE and self.options.get("correlation") != "spearman"

    def __call__(self, x, y=None, **more):
        return self.grid(x, y, **self.options, **more)

    def twin(self, x, y=None, *, eps=None) -> np.ndarray:
        """Return the twin's result for the same values and, where it has one, rule of rank."""
        options = dict(self.options)
        if self.rank_rule:
            options["eps"] = eps or rank_eps([*x, *(y or [])])
        return getattr(reference, self.function)(exact(x), exact(y), **options)

    def assert_like(self, got, want, x, y, dtype, condition=1.0) -> None:
        """Fail where a grid of x and y differs from another by more than is promised."""
        tolerance.assert_measure(got, want, dtype, condition=condition)

    def sides(self, n=150, dtype=torch.float64, offset=10.0):
        """Two sides of layers of n rows, three and two."""
        x = self.layers(Case(n, offset, widths=(20, 7, 33)), dtype)
        return x, self.layers(Case(n, widths=(12, 5)), dtype, seed=1)

    def layers(self, case: Case, dtype=torch.float64, *, seed=0) -> list[torch.Tensor]:
        """`cases.layers`, widened to what this measure needs."""
        widths = tuple(max(width, self.min_width) for width in case.widths)
        return layers(Case(case.n, case.offset, case.outlier, widths), dtype, seed=seed)

    def __str__(self) -> str:
        return self.name


def rank_eps(tensors: list[torch.Tensor]) -> float:
    """Return the precision of the layers, which the twin's rule of rank takes for all of them."""
    (dtype,) = {tensor.dtype for tensor in tensors}
    return torch.finfo(dtype).eps


CCA = Measure("cca", "cca_grid")
CCA_R2 = Measure("cca-r2", "cca_grid", {"reduction": "r2"})
SVCCA = Measure("svcca", "svcca_grid", invariant_x=ROTATION, invariant_y=ROTATION)
SVCCA_COUNT = Measure(
    "svcca-count", "svcca_grid", {"truncation": 3}, invariant_x=ROTATION, invariant_y=ROTATION
)
SVCCA_STANDARDIZED = Measure(
    "svcca-standardized",
    "svcca_grid",
    {"truncation": 0.9, "standardize": True},
    invariant_x=NEURONS,
    invariant_y=NEURONS,
)
# Two layers of more than n - 1 dimensions together share a space, in which all correlations are 1
# and the variates of pwcca undetermined.
PWCCA = Measure("pwcca", "pwcca_grid", symmetric=False, min_rows=129, invariant_x=SIGNS)
PWCCA_TRUNCATED = Measure(
    "pwcca-truncated",
    "pwcca_grid",
    {"truncation": 0.9},
    symmetric=False,
    min_rows=33,
    invariant_x=SIGNS,
    invariant_y=ROTATION,
)
# With standardised columns, weights do not depend on the scale of neurons.
PWCCA_STANDARDIZED = Measure(
    "pwcca-standardized",
    "pwcca_grid",
    {"truncation": 0.9, "standardize": True},
    symmetric=False,
    min_rows=33,
    invariant_x=NEURONS,
    invariant_y=NEURONS,
)
CCA_TOP = Measure("cca-top", "cca_grid", {"reduction": "r2", "top_k": 2})
SVCCA_TOP = Measure(
    "svcca-top",
    "svcca_grid",
    {"truncation": 0.9, "top_k": 0.5},
    invariant_x=ROTATION,
    invariant_y=ROTATION,
)
PWCCA_TOP = Measure(
    "pwcca-top",
    "pwcca_grid",
    {"truncation": 0.9, "top_k": 2},
    symmetric=False,
    min_rows=33,
    invariant_x=SIGNS,
    invariant_y=ROTATION,
)
LINREG = Measure("linreg", "linreg_grid", symmetric=False, invariant_x=ROTATION)
PROCRUSTES = Measure(
    "procrustes", "procrustes_grid", rank_rule=False, invariant_x=ROTATION, invariant_y=ROTATION
)
NEURONSIM = Measure(
    "neuronsim",
    "neuronsim_grid",
    symmetric=False,
    rank_rule=False,
    takes_bases=False,
    invariant_x=NEURONS,
    invariant_y=NEURONS,
)
MIXEDSIM = Measure("mixedsim", "mixedsim_grid", symmetric=False, invariant_x=NEURONS)
NEURONSIM_TOP = replace(NEURONSIM, name="neuronsim-top", options={"top_k": 3})
MIXEDSIM_TOP = replace(MIXEDSIM, name="mixedsim-top", options={"top_k": 0.29})
RSA = Measure(
    "rsa",
    "rsa_grid",
    rank_rule=False,
    takes_bases=False,
    min_rows=5,
    min_width=5,
    any_translation=False,
    invariant_x=PERMUTATION,
    invariant_y=PERMUTATION,
)
RSA_SPEARMAN = Measure(
    "rsa-spearman",
    "rsa_grid",
    {"correlation": "spearman"},
    rank_rule=False,
    takes_bases=False,
    min_rows=5,
    min_width=5,
    any_translation=False,
    invariant_x=PERMUTATION,
    invariant_y=PERMUTATION,
)


class Hsic(Measure):
    """CKA and HSIC: runs of one path differ by rounding. Their twins know no method."""

    def twin(self, x, y=None, *, eps=None) -> np.ndarray:
        options = {name: value for name, value in self.options.items() if name != "method"}
        return getattr(reference, self.function)(exact(x), exact(y), **options)

    def assert_like(self, got, want, x, y, dtype, condition=1.0) -> None:
        tolerance.assert_same(got, want, dtype)


def _hsic(name: str, function: str = "cka_grid", **options: Any) -> Hsic:
    kinds = {"invariant_x": ROTATION, "invariant_y": ROTATION}
    return Hsic(name, function, options, rank_rule=False, takes_bases=False, **kinds)


CKAS = (
    _hsic("cka-gram", method="gram"),
    _hsic("cka-feature", method="feature"),
    _hsic("cka-unbiased", estimator="unbiased"),
    _hsic("cka-rbf", kernel="rbf"),
)
HSIC_RBF = _hsic("hsic-rbf", "hsic_grid", kernel="rbf")

MEASURES = (
    CCA,
    CCA_R2,
    SVCCA,
    SVCCA_COUNT,
    SVCCA_STANDARDIZED,
    PWCCA,
    PWCCA_TRUNCATED,
    PWCCA_STANDARDIZED,
    CCA_TOP,
    SVCCA_TOP,
    PWCCA_TOP,
    LINREG,
    PROCRUSTES,
    NEURONSIM,
    NEURONSIM_TOP,
    MIXEDSIM,
    MIXEDSIM_TOP,
    RSA,
    RSA_SPEARMAN,
)
ON_BASES = tuple(measure for measure in MEASURES if measure.takes_bases)
# One row a function, for tests that do not depend on options.
FUNCTIONS = (CCA, SVCCA, PWCCA, LINREG, PROCRUSTES, NEURONSIM, MIXEDSIM, RSA)

# The cases of the tests of accuracy: every measure with the inputs that it is defined for.
JOB_WIDTHS = (7, 1, 40, 24)
JOB_CASES = (
    *(Case(n, widths=JOB_WIDTHS) for n in (2, 3, 5, 33)),
    *(
        Case(129, offset, outlier, JOB_WIDTHS)
        for offset, outlier in ((0.0, False), (10.0, True), (1000.0, False), (1000.0, True))
    ),
    Case(33, 1000.0, True, JOB_WIDTHS),
    Case(150, 10.0, True, (130, 3)),
)
JOBS = [
    (measure, case)
    for measure in MEASURES
    for case in JOB_CASES
    if case.n >= measure.min_rows and (measure is not PWCCA or case.n > 2 * max(case.widths))
]
