"""Which axes of states hold the examples and the channels.

Layers of torch say it themselves, and so do the parts of their outputs. A module that has such
layers inside shows it where one axis is as wide as they are and the other is not. After a layer
that gives ``[B, C, T]``, the layers that have run say it (`Trail`), or nothing is recorded.
Elsewhere ``[B, T, p]`` and ``[B, C, H, W]`` are assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from simcore.recording.outputs import tensors_of

# The axes of states of three axes.
TOKENS, CHANNELS, TIME_FIRST, LAYERS_FIRST = "[B, T, p]", "[B, C, T]", "[T, B, p]", "[layers, B, p]"

# Layers that give channels last, and second. Subclasses of the first may turn the axes.
_LAST = (nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Embedding)
_SECOND = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.GroupNorm)
_ONE_DIMENSIONAL = (
    nn.Conv1d,
    nn.ConvTranspose1d,
    nn.BatchNorm1d,
    nn.SyncBatchNorm,
    nn.InstanceNorm1d,
    nn.GroupNorm,
    nn.MaxPool1d,
    nn.AvgPool1d,
    nn.LPPool1d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveMaxPool1d,
)
# Files of torch whose layers leave the order of the axes as it is.
_ELEMENTWISE = tuple(f"torch.nn.modules.{file}" for file in ("activation", "dropout", "padding"))
_WIDTHS = ("out_channels", "num_features", "num_channels", "out_features", "embedding_dim")
_INPUT_WIDTHS = ("in_channels", "num_features", "num_channels", "in_features", "input_size")

_BATCH_FIRST = (
    nn.RNNBase,
    nn.MultiheadAttention,
    nn.Transformer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)
# Modules of transformers whose states are [T, B, p].
_TIME_FIRST = ("XLNetLayer", "XLNetRelativeAttention", "XLNetFeedForward")


class Trail:
    """The layers of a forward pass that have shown the axes of their outputs, ``[., ., .]``."""

    def __init__(self) -> None:
        self._known = WeakIdKeyDictionary()  # axes of tensors
        self._widths: list[int] = []  # channels of the layers that have run
        self.is_turned = False  # whether one of them gave [B, C, T]
        self._last: str | None = None  # axes of the last of them

    def hear(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Note what a call shows."""
        parts = output if isinstance(output, tuple) else (output,)
        for part in tensors_of(output):
            if not isinstance(part, Tensor):
                continue
            if part.ndim != 3:
                if isinstance(module, nn.Linear):  # rows that are unflattened later
                    self._widths.append(part.shape[-1])
                    self._last = TOKENS
                continue
            axes = _own_axes(module, part, is_first=part is parts[0])
            if axes is None and _is_elementwise(module) and args and isinstance(args[0], Tensor):
                axes = self.axes(args[0])
            if axes is not None:
                self._known[part] = axes
                self._widths.append(part.shape[1 if axes == CHANNELS else 2])
                self.is_turned = self.is_turned or axes == CHANNELS
                self._last = axes

    def axes(self, states: Tensor) -> str | None:
        """Return the axes of a tensor that one of the layers gave, and None of another."""
        axes: str | None = self._known.get(states)
        return axes

    def nearest(self, states: Tensor) -> str | None:
        """Return the axes that the last layer shows that is as wide as one of them, not both.

        Where none is as wide, the axes are tokens if the last layer gave these.
        """
        for width in reversed(self._widths):
            fits = [size == width for size in states.shape[1:]]
            if any(fits):
                return None if all(fits) else (CHANNELS if fits[0] else TOKENS)
        return TOKENS if self._last == TOKENS else None


def shows_axes(module: nn.Module) -> bool:
    """Whether a `Trail` is to hear a module."""
    known = (*_LAST, *_ONE_DIMENSIONAL, nn.RNNBase)
    return isinstance(module, known) or _is_elementwise(module)


def needs_trail(core: nn.Module) -> bool:
    """Whether states of a model may have axes that the modules do not show alone."""
    return any(isinstance(module, (*_ONE_DIMENSIONAL, nn.RNNBase)) for module in core.modules())


def axes_of(
    module: nn.Module, states: Tensor, trail: Trail | None, *, is_first: bool, is_input: bool
) -> str | None:
    """Return the axes of states of three axes, as the module gives or takes them.

    None if layers before the module turned the axes, and nothing shows their order now.
    ``is_first`` says whether the states are the first tensor of the output, and no other part of
    it, and ``is_input`` whether the module takes them.
    """
    axes = trail.axes(states) if trail else None
    axes = axes or _own_axes(module, states, is_first, is_input)
    if axes:
        return axes
    if not is_input and _shows(
        module, here=states.shape[1], there=states.shape[2], kinds=_is_second
    ):
        return CHANNELS
    if trail is None or not trail.is_turned:
        return TOKENS
    return trail.nearest(states)


def channels_second(states: Tensor, module: nn.Module, name: str, is_input: bool) -> Tensor:
    """Return states of images, ``[B, C, ...]``, of the output of a module, or of its input."""
    if states.ndim < 4:
        return states
    if _is_last(module) and _width(module, is_input) == states.shape[-1]:
        return states.movedim(-1, 1)
    if _shows(module, here=states.shape[-1], there=states.shape[1], kinds=_is_last):
        raise ValueError(
            f"pool: wanted the channels of the output of {name!r} on its second axis, got shape "
            f"{tuple(states.shape)}, whose last axis is as wide as layers inside; "
            "select=lambda output: output.movedim(-1, 1) moves it, and pool='flatten' takes any "
            "order"
        )
    return states


def is_time_first(module: nn.Module) -> bool:
    """Whether a module takes and gives ``[T, B, p]``."""
    if isinstance(module, nn.TransformerEncoder | nn.TransformerDecoder):
        return is_time_first(module.layers[0])
    if isinstance(module, _BATCH_FIRST):
        return not getattr(module, "batch_first", None) and not getattr(
            getattr(module, "self_attn", None), "batch_first", False
        )
    return type(module).__name__ in _TIME_FIRST


def _own_axes(
    module: nn.Module, states: Tensor, is_first: bool, is_input: bool = False
) -> str | None:
    """Return the axes that torch documents for a module's output, for a part, or for its input."""
    if not is_first:
        if isinstance(module, nn.RNNBase):
            return LAYERS_FIRST  # h_n and c_n, whatever batch_first says
        return TOKENS if isinstance(module, nn.MultiheadAttention) else None  # weights [B, L, S]
    if is_time_first(module):
        return TIME_FIRST
    if isinstance(module, _BATCH_FIRST):
        return TOKENS
    width = _width(module, is_input)
    if isinstance(module, _ONE_DIMENSIONAL) and width in (None, states.shape[1]):
        return CHANNELS  # of another width, a function has turned the axes
    return TOKENS if _is_last(module) and width == states.shape[2] else None


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


def _is_elementwise(module: nn.Module) -> bool:
    kind = type(module)
    return kind is nn.Identity or (
        kind.__module__ in _ELEMENTWISE and kind is not nn.MultiheadAttention
    )


def _width(module: nn.Module, is_input: bool = False) -> int | None:
    """Return the channels that a layer gives, or takes; None of another module."""
    if isinstance(module, nn.RNNBase):
        return (module.proj_size or module.hidden_size) * (1 + module.bidirectional)
    if not isinstance(module, _LAST + _SECOND):
        return None
    shape: tuple[int, ...] = getattr(module, "normalized_shape", ())
    if len(shape) == 1:
        return shape[0]
    names = _INPUT_WIDTHS if is_input else _WIDTHS
    return next((getattr(module, one) for one in names if hasattr(module, one)), None)
