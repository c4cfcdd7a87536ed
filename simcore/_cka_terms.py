"""HSIC of all pairs of layers with the checked options of CKA, and what rounding asks for.

An unbiased HSIC of float32 layers that rounding has lost is computed again in float64, so that
values and gradients come from one graph. Where torch traces, nothing is: no decision can then rest
on values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from simcore._grid.accuracy import (
    ANGLE_IS_ROUNDING,
    GRADIENT_IS_ROUNDING,
    computed_again,
    hsic_is_lost,
    hsic_rounding,
    pairs_again,
)
from simcore._grid.finish import warn_caller
from simcore._grid.inputs import LEAST_ROWS, Layers, on_host
from simcore._grid.matrices import Examples
from simcore._grid.memory import memory_bound
from simcore._grid.normalise import defined_layers, normalise
from simcore._grid.one_operator import is_followed, is_traced
from simcore._grid.options import check_choice, check_max_memory, check_number
from simcore._grid.rank import UNIT32, UNIT64
from simcore._grid.resolution import resolved, row_lengths
from simcore._grid.scale import in_range
from simcore._grid.side import Sides, read_sides
from simcore._ops.gram_matrices import terms_of_matrices
from simcore._ops.hsic_derivatives import Terms, differentiable_hsic_terms
from simcore._ops.hsic_gradients import widest_dtype
from simcore._ops.hsic_plan import flops
from simcore._ops.sampled_neurons import check_widths, without_own_pairs, without_same_pairs

LEAST_HSIC = 1e-280  # a smaller HSIC of a layer with itself begins to lose digits of float64


class CkaOptions:
    """The checked options that CKA and HSIC share."""

    def __init__(
        self,
        kernel: str,
        estimator: str,
        bandwidth: float,
        method: str,
        precision: str,
        max_memory: int | None,
        neurons: str = "all",
        function: str = "cka_grid",
    ) -> None:
        self.kernel = check_choice(kernel, "kernel", ("linear", "rbf"))
        self.estimator = check_choice(estimator, "estimator", ("biased", "unbiased"))
        self.method = check_choice(method, "method", ("auto", "gram", "feature"))
        self.precision = check_choice(precision, "precision", ("highest", "high", "medium"))
        self.bandwidth = check_number(
            bandwidth, "bandwidth", "a positive number", lambda v: 0 < v < float("inf")
        )
        self.max_memory = max_memory
        check_max_memory(max_memory)
        if kernel == "rbf" and method == "feature":
            raise ValueError("method: wanted 'auto' or 'gram' for kernel 'rbf', got 'feature'")
        self.neurons = check_choice(neurons, "neurons", ("all", "sampled", "paired"))
        if neurons != "all" and (kernel, estimator) != ("linear", "unbiased"):
            raise ValueError(
                f"neurons: wanted 'all' for kernel {kernel!r} and estimator {estimator!r}, got "
                f"{neurons!r}; {neurons!r} corrects kernel 'linear' and estimator 'unbiased'"
            )
        self.function = function

    @property
    def lowest(self) -> float | None:
        """The least possible CKA; None where estimates have no range."""
        if self.neurons != "all":
            return None
        return 0.0 if self.estimator == "biased" else -1.0

    def read(self, x: Layers, y: Layers | None) -> Sides:
        """Read both arguments of a grid with these options."""
        sides = read_sides(
            x,
            y,
            f"the {self.estimator} estimator",
            least_rows=LEAST_ROWS[self.estimator],
            max_memory=self.max_memory,
            differentiable=True,
        )
        if self.neurons != "all":
            check_widths(sides, self.neurons)
        return sides

    def terms_of_matrices(
        self, X: Layers, Y: Layers | None, *, scaled: bool
    ) -> tuple[Terms, Examples]:
        """Return the terms of layers among which there are Gram matrices, in float64."""
        for name, wanted in (("kernel", "linear"), ("neurons", "all")):
            given = getattr(self, name)
            if given != wanted:
                raise ValueError(
                    f"{name}: wanted {wanted!r} where a layer is a Gram, got {given!r}"
                )
        return terms_of_matrices(X, Y, self.estimator, check_max_memory(self.max_memory), scaled)

    def scale_free_terms(self, sides: Sides) -> Terms:
        """Return `terms` of layers that are scaled by powers of two where float64 needs it.

        For the RBF kernel, layers whose distances float32 loses are copied to float64 before. For
        scaling, the layers are inspected only if a self-HSIC left the range of float64. Nothing is
        copied where torch traces, because no decision can then rest on values. Terms of a device
        are returned on the host: to read all of them once takes less time than the many small
        operations that make a grid of them take on the device.
        """
        x, y, max_memory = sides.x.layers, sides.y.layers, sides.max_memory
        if is_traced(x[0]):
            return self.terms(x, y, max_memory)
        if self.kernel == "rbf":
            wide = resolved(x + y, self.bandwidth)
            for label, before, after in zip(_labels(x, y), x + y, wide.layers, strict=True):
                if after is not before:
                    computed_again(self.function, label)
            max_memory = wide.workspace(max_memory)
            x, y = wide.layers[: len(x)], wide.layers[len(x) :]
        xy, xx, yy = on_host(self.terms(x, y, max_memory))
        if _in_range(xx, yy):
            return xy, xx, yy
        scaled = in_range(x + y)
        if scaled.nbytes == 0:
            return xy, xx, yy
        x, y = scaled.layers[: len(x)], scaled.layers[len(x) :]
        xy, xx, yy = on_host(self.terms(x, y, scaled.workspace(max_memory)))
        return xy, xx, yy

    def grid(self, sides: Sides, angular: bool = False) -> Tensor:
        """Return CKA, or the angles whose cosines it is, and warn of layers that have none."""

        def compute(x: list[Tensor], y: list[Tensor], max_memory: int) -> Tensor:
            both = replace(sides.x, layers=x), replace(sides.y, layers=y)
            xy, xx, yy = self.scale_free_terms(Sides(both[0], both[1], max_memory))
            defined = defined_layers(self.function, xx.detach(), yy.detach(), not y, self.kernel)
            return normalise(xy, xx, yy, defined, self.lowest)

        grid = compute(sides.x.layers, sides.y.layers, sides.max_memory)
        grid = exact_near_one(self.function, sides, grid, compute, angular)
        return angle(grid) if angular else grid

    def terms(self, x: list[Tensor], y: list[Tensor], max_memory: int) -> Terms:
        """Return the HSIC of all pairs and of every layer with itself."""
        if (self.kernel, self.estimator) == ("linear", "unbiased"):
            return unbiased_terms(
                self.function, x, y, self.method, self.precision, max_memory, self.neurons
            )
        options = (self.kernel, self.estimator, self.bandwidth, self.method)
        return differentiable_hsic_terms(x, y, *options, max_memory, self.precision)


def _in_range(xx: Tensor, yy: Tensor) -> bool:
    """Return whether float64 holds all self-HSICs with all their digits."""
    values = torch.cat([xx.detach(), yy.detach()])
    return bool(((values >= LEAST_HSIC) & torch.isfinite(values)).all())


def unbiased_terms(
    function: str,
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    method: str = "auto",
    precision: str = "highest",
    max_memory: int = 0,
    neurons: str = "all",
    names: tuple[str, str] = ("X", "Y"),
) -> Terms:
    """Return unbiased linear HSICs, in float64 where float32 would lose a self-HSIC.

    ``neurons`` may leave out the pairs of a neuron with itself. ``names`` are those of x and y.
    """

    def compute(x: Sequence[Tensor], y: Sequence[Tensor], left: int) -> tuple[Terms, Terms]:
        options = ("linear", "unbiased", 1.0, method, left, precision)
        whole = differentiable_hsic_terms(x, y, *options)
        return whole, _corrected(whole, x, y, left, neurons)

    layers, n = [*x, *y], len(x[0])
    whole, terms = compute(x, y, max_memory)
    if is_traced(layers[0]):
        return terms
    wide = widest_dtype(layers) == torch.float64
    if wide and bool((_selves(terms, len(layers)) > 0).all()):
        return terms
    form = _method(x, y, method)
    lengths = row_lengths([layer.detach() for layer in layers])
    rounding = _rounding(terms, whole, lengths, n, form)
    labels = _labels(x, y, names)
    lost = hsic_is_lost(rounding, UNIT32).nonzero().flatten().tolist()
    if not wide and lost:
        for i in lost:
            computed_again(function, labels[i])
        # One float64 layer among the others makes the operator compute in float64.
        least = min(lost, key=lambda i: layers[i].numel())
        layers[least] = layers[least].double()
        left = max(memory_bound(max_memory, layers[0]) - layers[least].nbytes, 1)
        whole, terms = compute(layers[: len(x)], layers[len(x) :], left)
        rounding = _rounding(terms, whole, lengths, n, form)
    if wide or lost:
        hidden = hsic_is_lost(rounding, UNIT64).tolist()
        found = [label for label, is_hidden in zip(labels, hidden, strict=True) if is_hidden]
        if found:
            warn_caller(
                f"{function}: rounding hides the unbiased HSIC of {', '.join(found)}, in float64 "
                "too: a few rows are too far from the others"
            )
    return terms


def _labels(x: Sequence[Tensor], y: Sequence[Tensor], names: Sequence[str] = "XY") -> list[str]:
    sides = zip(names, (x, y), strict=True)
    return [f"{name}[{i}]" for name, side in sides for i in range(len(side))]


def _selves(terms: Terms, count: int) -> Tensor:
    """Return the self-HSICs of ``count`` layers, those of x and of y if these are others."""
    _, xx, yy = (term.detach() for term in terms)
    return xx if len(xx) == count else torch.cat([xx, yy])


def _rounding(terms: Terms, whole: Terms, lengths: Tensor, n: int, method: str) -> Tensor:
    left, all_pairs = on_host([_selves(one, len(lengths)) for one in (terms, whole)])
    return hsic_rounding(left, all_pairs, lengths, n, method)


def _corrected(
    whole: Terms, x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int, neurons: str
) -> Terms:
    """Return HSICs without the pairs of a neuron with itself that ``neurons`` leaves out."""
    if neurons == "all":
        return whole
    xy, xx, yy = whole
    if neurons == "paired":
        xy = without_same_pairs(xy, x, y or x, max_memory)
    xx = without_own_pairs(xx, x, max_memory)
    return xy, xx, without_own_pairs(yy, y, max_memory) if y else xx


def _method(x: Sequence[Tensor], y: Sequence[Tensor], method: str) -> str:
    """Return the method that "auto" stands for."""
    if method != "auto":
        return method
    widths_x, widths_y = ([layer.shape[1] for layer in side] for side in (x, y))
    gram, feature = flops(len(x[0]), widths_x, widths_y, "linear")
    return "feature" if feature < gram else "gram"


def exact_near_one(
    function: str,
    sides: Sides,
    grid: Tensor,
    compute: Callable[[list[Tensor], list[Tensor], int], Tensor],
    angular: bool = False,
) -> Tensor:
    """Return CKA or RSA, in float64 of pairs so alike that float32 lost their gradient or angle."""
    followed = grid.requires_grad
    layers = sides.x.layers + sides.y.layers
    if not (angular or followed) or is_traced(grid) or is_followed(layers):
        return grid
    alike = grid.detach() > 1 - (ANGLE_IS_ROUNDING if angular else GRADIENT_IS_ROUNDING)
    itself = sides.selves()
    if itself is not None:
        alike &= ~itself.to(alike.device)
    name = function if angular else f"{function} gradient"
    half = max(sides.bound // 2, 1)
    return pairs_again(name, sides, grid, alike, lambda x, y: compute(x, y, half))


def angle(cosines: Tensor) -> Tensor:
    """Return the angles in radians; the derivative is 0 where an angle is 0 or pi, not infinite."""
    inside = cosines.detach().abs() < 1
    ends = cosines.detach().arccos()
    return torch.where(inside, torch.where(inside, cosines, 0.0).arccos(), ends)
