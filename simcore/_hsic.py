"""HSIC of all pairs of layers and CKA, its quotient: the options, and what rounding asks for.

An unbiased HSIC of float32 layers that rounding has lost is computed again in float64, so that
values and gradients come from one graph. Where torch traces, nothing is: no decision can then rest
on values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from simcore._grid.accuracy import (
    ANGLE_IS_ROUNDING,
    GRADIENT_IS_ROUNDING,
    TOLERANCE,
    computed_again,
    hsic_is_lost,
    hsic_rounding,
    pairs_again,
    within,
)
from simcore._grid.finish import masked, warn_caller, warn_undefined
from simcore._grid.inputs import LEAST_ROWS, Layers, on_host
from simcore._grid.matrices import Matrix
from simcore._grid.memory import memory_bound
from simcore._grid.one_operator import is_followed, is_traced, one_operator
from simcore._grid.options import check_choice, check_number
from simcore._grid.rank import UNIT32, UNIT64
from simcore._grid.scale import in_range, resolved, row_lengths
from simcore._grid.side import Sides, read_sides
from simcore._ops.gram_matrices import terms_of_matrices
from simcore._ops.hsic_derivatives import Terms, differentiable_hsic_terms
from simcore._ops.hsic_gradients import widest_dtype
from simcore._ops.hsic_plan import cheaper_method
from simcore._ops.sampled_neurons import of_other_neurons

Kernel = Literal["linear", "rbf"]
Estimator = Literal["biased", "unbiased"]
Neurons = Literal["all", "sampled", "paired"]
Method = Literal["auto", "gram", "feature"]
Precision = Literal["highest", "high", "medium"]
CHOICES = {
    **{"kernel": Kernel, "estimator": Estimator, "neurons": Neurons},
    **{"method": Method, "precision": Precision},
}
LEAST_HSIC = 1e-280  # a smaller HSIC of a layer with itself begins to lose digits of float64
NOT_POSITIVE = (
    "the self-HSIC is not positive (no variance, too few rows or neurons for the estimate, or "
    "rounding) or beyond float64"
)
NO_WIDTH = (
    "the median distance between rows, the unit of the bandwidth, is 0 or beyond float64 (no "
    "variance, or half of all pairs of rows are equal: a `Gram` then takes a kernel of any width)"
)


@dataclass(kw_only=True)
class HsicOptions:
    """The checked options that CKA and HSIC share, of a `function` that messages name."""

    function: str
    kernel: Kernel = "linear"
    estimator: Estimator = "biased"
    bandwidth: float = 1.0
    neurons: Neurons = "all"
    method: Method = "auto"
    precision: Precision = "highest"
    max_memory: int | None = None

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            check_choice(getattr(self, name), name, choices)
        self.bandwidth = check_number(
            self.bandwidth, "bandwidth", "a positive number", lambda v: 0 < v < float("inf")
        )
        if self.kernel == "rbf" and self.method == "feature":
            raise ValueError("method: wanted 'auto' or 'gram' for kernel 'rbf', got 'feature'")
        if self.neurons != "all" and (self.kernel, self.estimator) != ("linear", "unbiased"):
            raise ValueError(
                f"neurons: wanted 'all' for kernel {self.kernel!r} and estimator "
                f"{self.estimator!r}, got {self.neurons!r}; {self.neurons!r} corrects kernel "
                "'linear' and estimator 'unbiased'"
            )

    @property
    def lowest(self) -> float | None:
        """The least possible CKA; None where estimates have no range."""
        if self.neurons != "all":
            return None
        return 0.0 if self.estimator == "biased" else -1.0

    def read(self, x: Layers, y: Layers | None, matrices: type[Matrix] | None = None) -> Sides:
        """Read both arguments of a grid with these options; `matrices` may be among the layers."""
        sides = read_sides(
            x,
            y,
            f"the {self.estimator} estimator",
            least_rows=LEAST_ROWS[self.estimator],
            max_memory=self.max_memory,
            differentiable=True,
            matrices=matrices,
        )
        for name, wanted in (("kernel", "linear"), ("neurons", "all")):
            given = getattr(self, name)
            if sides.matrices and given != wanted:
                raise ValueError(
                    f"{name}: wanted {wanted!r} where a layer is a Gram, got {given!r}"
                )
        return sides

    def terms(self, x: list[Tensor], y: list[Tensor], max_memory: int) -> Terms:
        """Return the HSIC of all pairs and of every layer with itself."""
        if (self.kernel, self.estimator) != ("linear", "unbiased"):
            return self.operator(x, y, max_memory)
        return unbiased_terms(self, x, y, max_memory)

    def operator(self, x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int) -> Terms:
        """Call the operator; for unbiased HSIC see `unbiased_terms`."""
        options = (self.kernel, self.estimator, self.bandwidth, self.method)
        return differentiable_hsic_terms(x, y, *options, max_memory, self.precision)


@dataclass(frozen=True)
class HsicTerms:
    """HSIC of all pairs of layers and of every layer with itself, for CKA up to units of layers."""

    xy: Tensor  # [Lx, Ly]
    xx: Tensor  # [Lx]
    yy: Tensor  # [Ly]
    function: str  # for messages
    same: bool  # whether the layers of Y are the layers of X
    kernel: Kernel = "linear"
    lowest: float | None = -1.0  # CKA; None where values have no range

    def normalised(self) -> Tensor:
        return normalise(self.xy, self.xx, self.yy, self._defined(), self.lowest)

    def checked(self) -> Tensor:
        """Return HSIC, of layers that have one in float64."""
        if self.kernel == "linear":
            check_representable(self.xy, self.xx, self.yy)
            return self.xy
        x, y = self._defined()
        return masked(self.xy, ~x, ~y)

    def _defined(self) -> tuple[Tensor, Tensor]:
        xx, yy = self.xx.detach(), self.yy.detach()
        return defined_layers(self.function, xx, yy, self.same, self.kernel)


def hsic_terms(sides: Sides, options: HsicOptions, *, scaled: bool) -> HsicTerms:
    """Return the HSIC of all pairs of layers, which may be `scaled` as CKA allows."""
    if not sides.matrices:
        terms = _terms_of_layers(sides, options, scaled)
    else:
        terms = terms_of_matrices(sides, options.estimator, scaled)
    return HsicTerms(*terms, options.function, sides.same, options.kernel, options.lowest)


def _terms_of_layers(sides: Sides, options: HsicOptions, scaled: bool) -> Terms:
    """Return terms of layers, scaled by powers of two where CKA allows and float64 needs it."""
    # For the RBF kernel, layers whose distances float32 loses are copied to float64 before. For
    # scaling, the layers are inspected only if a self-HSIC left the range of float64. Terms of a
    # device are returned on the host: to read all of them once takes less time than the many small
    # operations that make a grid of them take on the device.
    if is_traced(sides.x.layers[0]) or not (scaled or options.kernel == "rbf"):
        return options.terms(sides.x.layers, sides.y.layers, sides.max_memory)
    layers, count, max_memory = sides.layers, len(sides.x), sides.max_memory
    if options.kernel == "rbf":
        wide = resolved(layers, options.bandwidth)
        for label, before, after in zip(sides.labels, layers, wide.layers, strict=True):
            if after is not before:
                computed_again(options.function, label)
        layers, max_memory = wide.layers, wide.workspace(max_memory)
    xy, xx, yy = on_host(options.terms(layers[:count], layers[count:], max_memory))
    if _in_range(xx, yy):
        return xy, xx, yy
    inside = in_range(layers)
    if inside.nbytes:
        layers, max_memory = inside.layers, inside.workspace(max_memory)
        xy, xx, yy = on_host(options.terms(layers[:count], layers[count:], max_memory))
    return xy, xx, yy


def cka(sides: Sides, options: HsicOptions, angular: bool = False) -> Tensor:
    """Return CKA, or the angles whose cosines it is, and warn of layers that have none."""

    def compute(x: list[Tensor], y: list[Tensor], max_memory: int) -> Tensor:
        both = replace(sides.x, layers=x), replace(sides.y, layers=y)
        return hsic_terms(Sides(*both, max_memory), options, scaled=True).normalised()

    grid = compute(sides.x.layers, sides.y.layers, sides.max_memory)
    if not sides.matrices:
        grid = exact_near_one(options.function, sides, grid, compute, angular)
    return angle(grid) if angular else grid


def _in_range(xx: Tensor, yy: Tensor) -> bool:
    """Return whether float64 holds all self-HSICs with all their digits."""
    values = torch.cat([xx.detach(), yy.detach()])
    return bool(((values >= LEAST_HSIC) & torch.isfinite(values)).all())


def unbiased_terms(
    options: HsicOptions,
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    max_memory: int,
    names: tuple[str, str] = ("X", "Y"),  # of x and y
) -> Terms:
    """Return unbiased linear HSICs, in float64 where float32 would lose a self-HSIC."""

    def compute(x: Sequence[Tensor], y: Sequence[Tensor], left: int) -> tuple[Terms, Terms]:
        whole = options.operator(x, y, left)
        return whole, of_other_neurons(whole, x, y, left, options.neurons)

    def rounding_of(*both: Terms) -> Tensor:
        left, all_pairs = on_host([_selves(terms, len(layers)) for terms in both])
        return hsic_rounding(left, all_pairs, lengths, n, method)

    layers, n = [*x, *y], len(x[0])
    whole, terms = compute(x, y, max_memory)
    if is_traced(layers[0]):
        return terms
    wide = widest_dtype(layers) == torch.float64
    method = cheaper_method(x, y) if options.method == "auto" else options.method
    lengths = row_lengths([layer.detach() for layer in layers])
    rounding = rounding_of(terms, whole)
    labels = [f"{names[0]}[{i}]" for i in range(len(x))]
    labels += [f"{names[1]}[{i}]" for i in range(len(y))]
    lost = hsic_is_lost(rounding, UNIT32).nonzero().flatten().tolist()
    if not wide and lost:
        for i in lost:
            computed_again(options.function, labels[i])
        # One float64 layer among the others makes the operator compute in float64.
        least = min(lost, key=lambda i: layers[i].numel())
        layers[least] = layers[least].double()
        left = max(memory_bound(max_memory, layers[0]) - layers[least].nbytes, 1)
        whole, terms = compute(layers[: len(x)], layers[len(x) :], left)
        rounding = rounding_of(terms, whole)
    if wide or lost:
        hidden = hsic_is_lost(rounding, UNIT64).tolist()
        found = [label for label, is_hidden in zip(labels, hidden, strict=True) if is_hidden]
        if found:
            warn_caller(
                f"{options.function}: rounding hides the unbiased HSIC of {', '.join(found)}, in "
                "float64 too: a few rows are too far from the others"
            )
    return terms


def _selves(terms: Terms, count: int) -> Tensor:
    """Return the self-HSICs of ``count`` layers, those of x and of y if these are others."""
    _, xx, yy = (term.detach() for term in terms)
    return xx if len(xx) == count else torch.cat([xx, yy])


def exact_near_one(
    function: str,
    sides: Sides,
    grid: Tensor,
    compute: Callable[[list[Tensor], list[Tensor], int], Tensor],
    angular: bool = False,
) -> Tensor:
    """Return CKA or RSA, in float64 of pairs so alike that float32 lost their gradient or angle."""
    followed = grid.requires_grad
    layers = sides.layers
    if not (angular or followed) or is_traced(grid) or is_followed(layers):
        return grid
    alike = grid.detach().abs() > 1 - (ANGLE_IS_ROUNDING if angular else GRADIENT_IS_ROUNDING)
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


def normalise(
    xy: Tensor,
    xx: Tensor,
    yy: Tensor,
    defined: tuple[Tensor, Tensor] | None = None,
    lowest: float | None = -1.0,
) -> Tensor:
    """Return CKA ``[..., Lx, Ly]`` from HSIC; ``nan`` where a self-HSIC is not ``defined``."""
    # By default a self-HSIC is defined if it is positive and finite. Values lie between ``lowest``
    # and 1 but for rounding, which is taken away; None stands for values without a range.
    #
    # HSIC grows with the fourth power of the features, so that ``xx * yy`` leaves the range of
    # float64 for features of size 1e-40 or 1e40. Powers of two are therefore divided out first.
    # This is exact: a layer's similarity to itself stays exactly 1, which a product of two square
    # roots would not give.
    defined_x, defined_y = (_defined(xx), _defined(yy)) if defined is None else defined
    defined = defined_x[..., :, None] & defined_y[..., None, :]
    # Ones and zeros replace undefined values until the end: the gradients of all other layers would
    # receive a nan as 0 * nan.
    xx, yy = torch.where(defined_x, xx, 1.0), torch.where(defined_y, yy, 1.0)
    scale_x, scale_y = _inverse_root_scale(xx), _inverse_root_scale(yy)
    xx, yy = xx * scale_x * scale_x, yy * scale_y * scale_y
    xy = torch.where(defined, xy, 0.0) * scale_x[..., :, None] * scale_y[..., None, :]
    norms = xx[..., :, None] * yy[..., None, :]
    values = torch.where(defined, xy / torch.sqrt(norms), float("nan"))
    return values if lowest is None else within(values, lowest, 1.0, TOLERANCE)


def check_representable(
    result: Tensor, xx: Tensor, yy: Tensor, names: tuple[str, str] = ("X", "Y")
) -> None:
    if is_traced(result) or bool(torch.isfinite(result.detach()).all()):
        return
    for name, values in zip(names, (xx, yy), strict=True):
        for i in (~torch.isfinite(values)).nonzero().flatten().tolist():
            raise ValueError(
                f"{name}[{i}]: wanted features whose HSIC float64 can hold (HSIC grows with the "
                "fourth power of the features), got larger ones; divide them by a constant"
            )


def _defined(self_hsic: Tensor) -> Tensor:
    return (self_hsic > 0) & torch.isfinite(self_hsic)


def _inverse_root_scale(values: Tensor) -> Tensor:
    """Return the power of two nearest to ``1 / sqrt(values)``, for positive values."""
    # The exponent bits of float64 give it exactly. `torch.frexp` is not used: torch.compile of
    # torch 2.13 turns its int32 exponents into AVX-512 code that does not compile.
    exponent = (values.detach().view(torch.int64) >> 52) - 1022
    return ((1023 - (exponent >> 1)) << 52).view(torch.float64)


def _empty_masks(like: Tensor, name: str, xx: Tensor, yy: Tensor, *_: Any) -> list[Tensor]:
    return [xx.new_empty(xx.shape, dtype=torch.bool), yy.new_empty(yy.shape, dtype=torch.bool)]


def _both_masks(outputs: list[Tensor], *_: Any) -> tuple[Tensor, Tensor]:
    return outputs[0], outputs[1]


@one_operator(_empty_masks, _both_masks)
def defined_layers(
    name: str, xx: Tensor, yy: Tensor, same: bool, kernel: str = "linear"
) -> tuple[Tensor, Tensor]:
    """Return which layers of X and of Y have a self-HSIC to divide by; warn once of each other."""
    # ``xx`` [Lx] and ``yy`` [Ly] are the self-HSICs, which an RBF kernel leaves nan where the
    # median distance is 0. ``same`` says whether the layers of Y are the layers of X.
    x, y = _defined(xx), _defined(yy)
    none_x, none_y = ~x, ~y
    if kernel == "rbf":
        warn_undefined(name, xx.isnan(), None if same else yy.isnan(), NO_WIDTH)
        none_x, none_y = none_x & ~xx.isnan(), none_y & ~yy.isnan()
    warn_undefined(name, none_x, None if same else none_y, NOT_POSITIVE)
    return x, y
