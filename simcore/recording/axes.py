"""Which axis of states holds the channels: the second, or the last.

Layers of torch say it themselves. A module that has such layers inside shows it where one axis is
as wide as they are and the other is not. Elsewhere ``[B, T, p]`` and ``[B, C, H, W]`` are assumed.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

# Layers that give channels last, and second. Subclasses of the first may turn the axes.
_LAST = (nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Embedding)
_SECOND = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.GroupNorm)
_ONE_DIMENSIONAL = (
    nn.Conv1d,
    nn.ConvTranspose1d,
    nn.BatchNorm1d,
    nn.InstanceNorm1d,
    nn.MaxPool1d,
    nn.AvgPool1d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveMaxPool1d,
)
_WIDTHS = ("out_channels", "num_features", "num_channels", "out_features", "embedding_dim")


def is_channel_first(module: nn.Module, states: Tensor) -> bool:
    """Whether the states are ``[B, C, ...positions]`` and not ``[B, T, p]``."""
    if states.ndim != 3:
        return states.ndim > 3
    if isinstance(module, _ONE_DIMENSIONAL):
        return _width(module) in (None, states.shape[1])  # a function may have turned the axes
    return _shows(module, here=states.shape[1], there=states.shape[2], kinds=_is_second)


def channels_second(states: Tensor, module: nn.Module, name: str) -> Tensor:
    """Return states of images, ``[B, C, ...]``, of the output of a module.

    Raises
    ------
    ValueError
        The output shows that it is ``[B, ..., C]``, and the module is no layer of torch.
    """
    if states.ndim < 4:
        return states
    if _is_last(module) and _width(module) == states.shape[-1]:
        return states.movedim(-1, 1)
    if _shows(module, here=states.shape[-1], there=states.shape[1], kinds=_is_last):
        raise ValueError(
            f"pool: wanted the channels of the output of {name!r} on its second axis, got shape "
            f"{tuple(states.shape)}, whose last axis is as wide as layers inside; "
            "select=lambda output: output.movedim(-1, 1) moves it, and pool='flatten' takes any "
            "order"
        )
    return states


def _shows(module: nn.Module, here: int, there: int, kinds: Callable[[nn.Module], bool]) -> bool:
    """Whether a layer of some kinds inside is `here` wide, and no layer is `there` wide."""
    shows = False
    for inner in module.modules():
        width = _width(inner)
        if width == there:
            return False
        shows = shows or (width == here and kinds(inner))
    return shows


def _is_last(module: nn.Module) -> bool:
    return type(module) in _LAST


def _is_second(module: nn.Module) -> bool:
    return isinstance(module, _SECOND)


def _width(module: nn.Module) -> int | None:
    """Return the channels that a layer gives; None of another module."""
    if isinstance(module, nn.RNNBase):
        return (module.proj_size or module.hidden_size) * (1 + module.bidirectional)
    if not isinstance(module, _LAST + _SECOND):
        return None
    shape: tuple[int, ...] = getattr(module, "normalized_shape", ())
    if len(shape) == 1:
        return shape[0]
    return next((getattr(module, one) for one in _WIDTHS if hasattr(module, one)), None)
