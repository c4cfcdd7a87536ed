"""What is held to the contract: every measure of the records, with every value of its options."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from math import isinf
from typing import Any

import numpy as np
import torch

import simcore
from numerics import own
from numerics.layer import Layer
from simcore._measures import MEASURES
from simcore._measures.record import ATTENTION, Measure
from support.tolerance import FLOAT32_MEASURE_ABSOLUTE as ABSOLUTE

RELATIVE = 1e-4  # of measures without a range
FLOAT64 = 1e-14  # of the numbers whose difference is taken in float64

# Other values of the options, by keyword; the calls that a keyword needs come with it. A new option
# of a grid, in its record or in its signature, has to have a line here.
VALUES: dict[str, tuple[dict[str, Any], ...]] = {
    "estimator": ({"estimator": "biased"}, {"estimator": "unbiased"}),
    "kernel": ({"kernel": "rbf"}, {"kernel": "rbf", "estimator": "unbiased"}),
    "bandwidth": (
        {"kernel": "rbf", "bandwidth": 0.3},
        {"kernel": "rbf", "bandwidth": 8.0},
        {"kernel": "rbf", "bandwidth": 4.0, "estimator": "unbiased"},
    ),
    "neurons": tuple({"neurons": one, "estimator": "unbiased"} for one in ("sampled", "paired")),
    "method": tuple(
        {"method": method, "estimator": estimator}
        for method in ("gram", "feature")
        for estimator in ("biased", "unbiased")
    ),
    "reduction": ({"reduction": "r2"},),
    "truncation": tuple({"truncation": one} for one in (0.9, 0.9999, 10)),
    "standardize": ({"standardize": True},),
    "top_k": ({"top_k": 5}, {"top_k": 0.29}),
    "correlation": ({"correlation": "spearman"},),
    "norm": ({"norm": "spectral"},),
    "ridge": ({"ridge": 0.01}, {"ridge": 1e-6}),
    "k": ({"k": 3},),
    "metric": ({"metric": "euclidean"}, {"metric": "inner"}),
    "causal": ({"causal": True},),
    "rows": ({"rows": 60},),
    "draws": ({"rows": 60, "draws": 2},),  # of all rows, a single draw is taken
    "probes": (),  # for n > 2,000
    "seed": (),
    "lengths": (),  # of padded attention
    "mask": (),
}
# Keywords that leave the value as it is.
OF_THE_CALL = {"max_memory", "progress", "precision"}
# Grids without a formula of their own in `own`: beside the call of the same numbers in float64.
BESIDE_FLOAT64 = {"imd_grid", "rtd_grid"}
# Measures that a rank decides where no truncation does.
ON_RANKS = {"cca", "pwcca", "linreg", "mixedsim", "gulp", "eigenspace-overlap"}


@dataclass(frozen=True, eq=False)
class Case:
    """A measure with options; `run` gives its value for two layers."""

    record: Measure
    options: Mapping[str, Any]

    def __str__(self) -> str:
        changed = {k: v for k, v in self.options.items() if k not in self.record.fixed}
        return " ".join([self.record.name, *(f"{k}={v}" for k, v in changed.items())])

    def run(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        """Return the grid of one pair, ``[1, 1]``."""
        return getattr(simcore, self.record.function)([x], [y], **self.options)

    def right(self, a: Layer, b: Layer) -> float:
        """Return the right value, or the call in float64 where there is no own formula."""
        return a.once((b, str(self)), lambda: self.computed(a, b))

    def computed(self, a: Layer, b: Layer) -> float:
        if self.record.function in BESIDE_FLOAT64:
            return float(self.run(*(torch.from_numpy(layer.x) for layer in (a, b))))
        return getattr(own, self.record.function)(a, b, **self.options)

    def takes(self, a: Layer, b: Layer) -> bool:
        """Whether the measure is for these layers."""
        same = self.record.equal_widths or self.options.get("neurons") == "paired"
        return a.p == b.p or not same

    @property
    def unbounded(self) -> bool:
        return isinf(self.record.highest) or isinf(self.record.lowest)

    @property
    def on_ranks(self) -> bool:
        """Whether the value depends on the number of dimensions."""
        whole = self.options.get("truncation") is None and not self.options.get("ridge")
        return self.record.name in ON_RANKS and whole

    @property
    def metric(self) -> str:
        """By which the value depends on neighbours, or nothing."""
        if self.record.function == "cknna_grid":
            return "inner"
        default = "cosine" if self.record.function == "knn_grid" else ""
        return self.options.get("metric", default)

    def allowed(self, right: float, a: Layer, b: Layer) -> float:
        """Return the largest error by the contract, and what float64 may lose of a difference."""
        if not self.unbounded:
            return ABSOLUTE * max(1.0, abs(right))  # estimates for sampled neurons may pass 1
        sizes = [float(np.linalg.norm(layer.x)) for layer in (a, b)]
        if self.record.degree == 4:
            # HSIC of nearly unrelated layers has the error of CKA.
            scale = float(np.sqrt(abs(self.right(a, a) * self.right(b, b))))
            lost = max(FLOAT64 * scale, ABSOLUTE * scale - RELATIVE * abs(right))
        elif self.record.degree == 1:  # mostly the root of a difference of squares
            rows = 2 * a.n if self.record.name == "rsm-difference" else 1
            lost = np.sqrt(right**2 + FLOAT64 * rows * max(sizes) ** 2) - right
        else:
            lost = FLOAT64 * a.p * (max(a.condition, b.condition) if self.on_ranks else 1.0)
        return RELATIVE * abs(right) + float(lost)


class Minibatches(Case):
    """`MinibatchCKA`, which is no grid: four batches."""

    def __str__(self) -> str:
        return "minibatch-cka"

    def run(self, x, y):
        metric = simcore.MinibatchCKA()
        for part in zip(x.split(-(-len(x) // 4)), y.split(-(-len(x) // 4)), strict=True):
            metric.update(*([layer] for layer in part))
        return metric.compute()

    def computed(self, a, b):
        return own.minibatch(a, b, -(-a.n // 4))


def parameters(record: Measure) -> dict[str, inspect.Parameter]:
    """Return the keywords of a grid that change its value and that the record does not fix."""
    alike = [one for one in MEASURES.values() if one.function == record.function]
    elsewhere = {option for one in alike for option in (*one.options, *one.fixed)}
    signature = inspect.signature(getattr(simcore, record.function)).parameters
    left = OF_THE_CALL | set(record.fixed) | (elsewhere - set(record.options))
    return {
        name: one
        for name, one in signature.items()
        if one.kind is one.KEYWORD_ONLY and name not in left
    }


def cases_of(record: Measure) -> list[Case]:
    """Return the default, the variants of the record, and one case for each value of an option."""
    known = parameters(record)
    calls = [{}, *(dict(shown.options) for shown in record.shown)]
    calls += [one for option in known for one in VALUES.get(option, ()) if set(one) <= set(known)]
    effective = {}
    for call in calls:
        whole = {name: call.get(name, one.default) for name, one in known.items()}
        effective.setdefault(tuple(whole.items()), {**record.fixed, **call})
    # Estimates for sampled neurons have no angle.
    calls = [call for call in effective.values() if "neurons" not in call or "form" not in call]
    return [Case(record, options) for options in calls]


CASES = [
    case
    for record in MEASURES.values()
    if record.takes != (ATTENTION,)
    for case in cases_of(record)
] + [Minibatches(MEASURES["cka"], {"estimator": "unbiased"})]
BY_NAME = {str(case): case for case in CASES}
