"""The gradients of Procrustes comparisons, in all their forms.

Math: with unit layers ``x = Xc / a`` and ``y = Yc / b``, a and b being Frobenius norms, and the
polar factor ``P = U V'`` of ``x' y = U S V'``, the similarity ``s = tr S`` has the derivative
``(y P' - s x) / a`` by X, and a has ``x``. Singular values of 0 leave P undetermined; their part of
it is 0, which is the smallest of the subgradients. A distance is steep near 0, where s is near 1:
its slope takes ``1 - s = (||x - y P'||^2 + ||y - y P' P||^2) / 2``, which loses no digits there.

Cost: a singular value decomposition in float64 for each pair. The products of layers with more
columns than rows are brought to the size of the rows first. Memory: two float64 copies of every
layer, and of the products of one pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simcore._grid.inputs import centred
from simcore._grid.scale import in_range


@dataclass(frozen=True)
class _Unit:
    """A centred layer of Frobenius norm 1, ``core @ rotation.T``; None is the identity."""

    core: Tensor  # [n, min(n, p)]
    rotation: Tensor | None  # [p, n], orthonormal columns
    norm: Tensor  # of the given layer; 0 for one without variance

    def rotated(self, rows: Tensor) -> Tensor:
        """Return rows in the layer's coordinates from rows in the core's."""
        return rows if self.rotation is None else rows @ self.rotation.T


@dataclass(frozen=True)
class _Pair:
    """The similarity s of two unit layers, and its gradients by both cores."""

    s: Tensor
    missing: Tensor  # 1 - s
    rounding: float  # the distance that rounding leaves between equal layers
    by_x: Tensor  # [n, min(n, p)]
    by_y: Tensor  # [n, min(n, q)]


def procrustes_gradients(
    count_x: int,  # number of layers of X; if these are all, X is compared with itself
    form: str,  # similarity, distance, angular or size-and-shape
    layers: list[Tensor],  # [n, p_i] each
    grads: Sequence[Tensor],  # one gradient, by the grid [Lx, Ly]
    wanted: Sequence[bool],  # which layers need a gradient
) -> list[Tensor | None]:
    """Return the gradients by the layers of X, then of Y."""
    units = _units(layers)
    (of_pairs,) = grads  # [Lx, Ly]
    same = count_x == len(layers)
    gradients = [torch.zeros_like(unit.core) for unit in units]
    for i in range(count_x):
        for j in range(i + 1 if same else count_x, len(layers)):
            if not (wanted[i] or wanted[j]):
                continue
            x, y = units[i], units[j]
            weight = of_pairs[i, j] + of_pairs[j, i] if same else of_pairs[i, j - count_x]
            pair = _similarity(x, y)
            by_s, by_norm_x, by_norm_y = _slopes(form, pair, x.norm, y.norm)
            turned_x = _over(pair.by_x - pair.s * x.core, x.norm)
            turned_y = _over(pair.by_y - pair.s * y.core, y.norm)
            gradients[i] += weight * (by_s * turned_x + by_norm_x * x.core)
            gradients[j] += weight * (by_s * turned_y + by_norm_y * y.core)
    return [
        unit.rotated(gradient) if want else None
        for unit, gradient, want in zip(units, gradients, wanted, strict=True)
    ]


def _units(layers: list[Tensor]) -> list[_Unit]:
    scaled = in_range(layers)
    units = []
    for layer, exponent in zip(scaled.layers, scaled.exponents, strict=True):
        x = centred(layer)  # [n, p]
        norm = torch.linalg.vector_norm(x)  # []
        x = x / torch.where(norm > 0, norm, 1.0)
        norm = norm * 2.0**exponent
        if x.shape[1] <= x.shape[0]:
            units.append(_Unit(x, None, norm))
        else:
            q, r = torch.linalg.qr(x.T)  # [p, n], [n, n]
            units.append(_Unit(r.T.contiguous(), q, norm))
    return units


def _similarity(x: _Unit, y: _Unit) -> _Pair:
    u, s, vt = torch.linalg.svd(x.core.T @ y.core, full_matrices=False)  # [p, r], [r], [r, q]
    rounding = torch.finfo(s.dtype).eps * max(len(x.core), u.shape[0], vt.shape[1])
    kept = s > rounding * s.amax()
    polar = (u * kept) @ vt  # [p, q]
    by_x, by_y = y.core @ polar.T, x.core @ polar  # [n, p], [n, q]
    missing = (x.core - by_x).square().sum() + (y.core - by_x @ polar).square().sum()  # []
    return _Pair(s.sum(), missing / 2, rounding, by_x, by_y)


def _slopes(
    form: str, pair: _Pair, norm_x: Tensor, norm_y: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the derivatives of a form by s, and by the norms; 0 where the distance is 0."""
    none = torch.zeros_like(pair.s)
    if form == "similarity":
        return torch.ones_like(pair.s), none, none
    missing = pair.missing
    if form == "size-and-shape":
        largest = torch.maximum(norm_x, norm_y)
        unit = torch.where(largest > 0, largest, 1.0)
        a, b = norm_x / unit, norm_y / unit
        distance = ((a - b).square() + 2 * a * b * missing).sqrt()
        by_s, by_norm_x, by_norm_y = -unit * a * b, a - b + b * missing, b - a + a * missing
    else:
        square = 2 * missing if form == "distance" else missing * (2 - missing)
        distance, by_s, by_norm_x, by_norm_y = square.sqrt(), -torch.ones_like(none), none, none
    apart = distance > pair.rounding
    inverse = torch.where(apart, 1 / torch.where(apart, distance, 1.0), 0.0)
    return by_s * inverse, by_norm_x * inverse, by_norm_y * inverse


def _over(values: Tensor, norm: Tensor) -> Tensor:
    return torch.where(norm > 0, values / torch.where(norm > 0, norm, 1.0), 0.0)
