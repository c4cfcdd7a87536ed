"""CKA from HSIC: which layers have a self-HSIC to divide by, and the quotient."""

from typing import Any

import torch
from torch import Tensor

from simcore._grid.accuracy import TOLERANCE, within
from simcore._grid.finish import warn_undefined
from simcore._grid.one_operator import is_traced, one_operator

NOT_POSITIVE = (
    "the self-HSIC is not positive (no variance, too few rows or neurons for the estimate, or "
    "rounding) or beyond float64"
)
NO_WIDTH = (
    "the median distance between rows, the unit of the bandwidth, is 0 or beyond float64 (no "
    "variance, or half of all pairs of rows are equal: a `Gram` then takes a kernel of any width)"
)


def normalise(
    xy: Tensor,
    xx: Tensor,
    yy: Tensor,
    defined: tuple[Tensor, Tensor] | None = None,
    lowest: float | None = -1.0,
) -> Tensor:
    """Return CKA ``[..., Lx, Ly]`` from HSIC; ``nan`` where a self-HSIC is not ``defined``.

    By default a self-HSIC is defined if it is positive and finite. Values lie between ``lowest``
    and 1 but for rounding, which is taken away; None stands for values without a range.

    HSIC grows with the fourth power of the features, so that ``xx * yy`` leaves the range of
    float64 for features of size 1e-40 or 1e40. Powers of two are therefore divided out first. This
    is exact: a layer's similarity to itself stays exactly 1, which a product of two square roots
    would not give.
    """
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
    """Raise a ValueError that names the first layer with an infinite or undefined self-HSIC.

    Nothing is raised if every entry of ``result`` is finite.
    """
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
    """Return the power of two nearest to ``1 / sqrt(values)``, for positive values.

    The exponent bits of float64 give it exactly. `torch.frexp` is not used: torch.compile of torch
    2.13 turns its int32 exponents into AVX-512 code that does not compile.
    """
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
    """Return which layers of X and of Y have a self-HSIC to divide by; warn once of each other.

    ``xx`` [Lx] and ``yy`` [Ly] are the self-HSICs, which an RBF kernel leaves nan where the median
    distance is 0. ``same`` says whether the layers of Y are the layers of X.
    """
    x, y = _defined(xx), _defined(yy)
    none_x, none_y = ~x, ~y
    if kernel == "rbf":
        warn_undefined(name, xx.isnan(), None if same else yy.isnan(), NO_WIDTH)
        none_x, none_y = none_x & ~xx.isnan(), none_y & ~yy.isnan()
    warn_undefined(name, none_x, None if same else none_y, NOT_POSITIVE)
    return x, y
