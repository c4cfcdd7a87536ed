"""The contract of every value, and whether a call keeps it.

A value is within 1e-5 of the right one (1e-4 relative where a measure has no range), or it was
computed in float64, or a warning names the layer and what is not clear.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import isnan

import torch

from numerics.cases import Case
from numerics.distributions import DISTRIBUTIONS
from numerics.layer import Layer
from support.tolerance import as_float64

# What a warning says where it takes the place of a value: this is not clear, or this is rounding.
UNCLEAR = re.compile(
    r"not clear|rounding|\bties?\b|\btied\b|equally|equal (distances|singular values)|"
    r"between their directions"
)
LAYER = re.compile(r"\b[XY](_batch)?\[\d+\]|\bpairs?\b")


@contextmanager
def recomputed() -> Iterator[list[str]]:
    """Yield a list to which simcore adds a "measure: layer" for what it computes in float64."""
    from simcore._grid import accuracy  # the one place that reads it

    with accuracy.watch() as found:
        yield found


@dataclass(frozen=True)
class Verdict:
    """A value beside the right one, and what simcore said of it."""

    case: str
    place: str  # the distribution, its size and dtype
    value: float
    right: float
    error: float
    bound: float
    inside: bool  # whether it lies in the range of the measure, if the right value does
    again: tuple[str, ...]
    messages: tuple[str, ...]

    @property
    def warned(self) -> bool:
        """Whether a warning names the layer and says that something is not clear."""
        return any(UNCLEAR.search(one) and LAYER.search(one) for one in self.messages)

    @property
    def kept(self) -> bool:
        return self.inside and (self.error <= self.bound or self.warned)

    def __str__(self) -> str:
        found = f"{self.value!r} for {self.right!r}, error {self.error:.1e} of {self.bound:.1e}"
        return f"{self.place}: {self.case}: {found}"


def call(case: Case, x: torch.Tensor, y: torch.Tensor):
    """Return the value of a pair, what was computed in float64, and the warnings."""
    with warnings.catch_warnings(record=True) as caught, recomputed() as again:
        warnings.simplefilter("always")
        found = float(as_float64(case.run(x, y)).item())
    return found, tuple(again), tuple(str(one.message) for one in caught)


def distance(case: Case, found: float, right: float, a: Layer, b: Layer) -> tuple[float, float]:
    """Return the error of a value and the largest that it may have."""
    if isnan(found) or isnan(right):
        return (0.0 if isnan(found) and isnan(right) else float("inf")), 0.0
    return abs(found - right), case.allowed(right, a, b)


def rights(case: Case, a: Layer, b: Layer) -> list[float]:
    """Return the right value; two, where only a float64 covariance drops a component."""
    found = [case.right(a, b)]
    if any((layer.kept != layer.loose.kept).any() for layer in (a, b)):
        found.append(case.right(a.loose, b.loose))
    return found


def judge(case: Case, place: str, x: torch.Tensor, y: torch.Tensor, a: Layer, b: Layer, right=None):
    """Call a case on two tensors and return the verdict; ``a`` and ``b`` hold their numbers."""
    found, again, messages = call(case, x, y)
    right = rights(case, a, b) if right is None else right
    error, bound, nearest = min((*distance(case, found, one, a, b), one) for one in right)
    if error > bound and again:  # computed in float64: as good as the call of float64 layers
        double, _, _ = call(case, x.double(), y.double())
        error, bound = distance(case, found, double, a, b)
    low, high = case.record.lowest, case.record.highest
    inside = isnan(found) or low <= found <= high or not low <= nearest <= high
    return Verdict(str(case), place, found, nearest, error, bound, inside, again, messages)


@lru_cache(maxsize=4)  # tests of one distribution share its layers, and what these hold
def drawn(name: str, dtype: str = "float32", n: int = 300, p: int = 32):
    """Return two tensors of a distribution in a dtype, and `Layer`s of the same numbers.

    None where the dtype cannot hold the numbers: an entry overflows, or all of a layer vanishes.
    """
    if dtype == "widened":
        x, y, a, b = drawn(name, n=n, p=p)
        return x.double(), y.double(), a, b
    tensors = [
        torch.from_numpy(layer).to(getattr(torch, dtype))
        for layer in DISTRIBUTIONS[name].layers(n, p)
    ]
    if not all(t.isfinite().all() and t.any() for t in tensors):
        return None
    return (*tensors, *(Layer(t.double().numpy(), dtype) for t in tensors))


def verdicts(name: str, cases, dtype: str = "float32", n: int = 300, p: int = 32, rows=False):
    """Yield the verdict of each case on a distribution; ``rows``: of the rows in another order."""
    found = drawn(name, dtype, n, p)
    if found is None:
        return
    x, y, a, b = found
    if rows:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(n))
        x, y = x[order], y[order]
    place = f"{name} {a.n} x {a.p} {dtype}{', rows permuted' * rows}"
    for case in cases:
        if case.takes(a, b):
            yield judge(case, place, x, y, a, b)


def assert_kept(found) -> None:
    """Fail with all verdicts that break the contract."""
    broken = [str(verdict) for verdict in found if not verdict.kept]
    assert not broken, "\n".join([f"{len(broken)} values break the contract:", *broken])
