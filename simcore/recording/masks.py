"""The mask of a forward pass: which positions of ``[B, T]`` are tokens, and which are padding."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

# Names of arguments, in the order of search, and whether a true entry is padding there.
PADDING_IS_TRUE = {
    "attention_mask": False,
    "src_key_padding_mask": True,
    "tgt_key_padding_mask": True,
    "key_padding_mask": True,
    "padding_mask": True,
    "mask": False,
}
# Of an encoder-decoder: the encoder's mask, and the decoder's.
HALVES = {
    "attention_mask": "decoder_attention_mask",
    "src_key_padding_mask": "tgt_key_padding_mask",
}

# Inputs of a model of several kinds of data: the mask of a search belongs to the text.
TEXTS = ("input_ids", "inputs_embeds")
OTHER_INPUTS = ("pixel_values", "input_features", "input_values")
# Words between ``_`` and ``.`` in the names of modules of such a model that read no text, as in
# vision_tower, cross_modal_image_layers and img_encoder. LXMERT's r_layers read regions.
_NOT_TEXT = re.compile(
    r"(?:^|[._])(?:vision|visual|visn|image|img|pixel|video|audio|speech|vit(?!al)|q_?former"
    r"|resampler|perceiver|projector|connector|r_layers)"
)
_FEWEST_AXES = 3  # of pictures, their features, and sounds

# The method of speech models of transformers that turns numbers of samples into numbers of frames.
FRAMES = "_get_feat_extract_output_lengths"

Given = bool | str | Tensor | Callable[..., Tensor] | None


class PassMask:
    """The mask of one forward pass, or of each half of an encoder-decoder."""

    def __init__(
        self,
        # By half, "encoder" and "decoder", or one for all modules, "". 1 is a token. None if the
        # pass has no mask for that half.
        masks: dict[str, Tensor | None],
        why: Mapping[str, str],  # why a half has none
        no_padding: bool = False,  # the user said that nothing is padding
        # Number of tokens before this pass that a cache holds, and the mask covers too.
        past: int = 0,
        # The argument that modules named after pictures or sounds read, in a pass that has texts
        # too; the masks are not theirs.
        not_text: str = "",
        # The mask may count samples of sound, of which the states are frames.
        in_samples: bool = False,
    ) -> None:
        self.masks, self.why, self.no_padding, self.past = masks, why, no_padding, past
        self.not_text, self.in_samples = not_text, in_samples
        self._checked: dict[tuple[str, torch.device], Tensor] = {}

    def batch_size(self, name: str) -> int | None:
        """Return the number of examples of a module, if one mask ``[B, T]`` for all says it."""
        mask = None if self._is_apart(name) else self.masks.get("")
        return len(mask) if isinstance(mask, Tensor) and mask.ndim == 2 else None

    def kept(self, states: Tensor, name: str, required_by: str | None) -> Tensor | None:
        """Return the mask of `states`, ``[B, T, p]``: bool ``[B, T]``, or None if all are tokens.

        Raise a ValueError if there is no mask, though the pool `required_by` needs one.
        """
        if self.no_padding:
            return None
        if required_by is None and all(mask is None for mask in self.masks.values()):
            return None
        apart = self._is_apart(name)
        half = "" if apart else self._half(name)
        if apart or self.masks.get(half) is None:
            if required_by is None:
                return None
            why = f"that of the call is of the text, not of {self.not_text}"
            raise ValueError(
                f"mask: wanted one for pool={required_by!r} of the output {tuple(states.shape)} of "
                f"{name!r}, got none ({why if apart else self.why[half]}); mask=False says that "
                "nothing is padding, and pool='first' needs no mask"
            )
        if (half, states.device) not in self._checked:
            mask = _as_kept(self.masks[half], name)
            self._checked[half, states.device] = mask.to(states.device)
        return self._fitted(self._checked[half, states.device], states, name)

    def _is_apart(self, name: str) -> bool:
        """Whether the names of a module and of those around it say that it reads no text."""
        return bool(self.not_text) and _NOT_TEXT.search(name.lower()) is not None

    def _half(self, name: str) -> str:
        if "" in self.masks:
            return ""
        parts = name.split(".")
        for half in ("decoder", "encoder"):
            if half in parts:
                return half
        raise ValueError(
            f"mask: wanted mask= for {name!r}, which is in neither half of an encoder-decoder, "
            "got none"
        )

    def _fitted(self, mask: Tensor, states: Tensor, name: str) -> Tensor:
        wanted = states.shape[:2]
        if self.past and mask.shape[1] == self.past + wanted[1]:
            mask = mask[:, self.past :]
        if mask.shape == wanted:
            return mask
        hint = "; mask= takes a function of the call's (args, kwargs), or False for no padding"
        if self.in_samples:
            hint += (
                f", such as lambda args, kwargs: torch.arange({wanted[1]}) < "
                f'model.{FRAMES}(kwargs["attention_mask"].sum(1))[:, None] of a mask of samples'
            )
        if mask.shape == wanted[::-1]:
            hint = "; states [T, B, p] need select=, such as lambda output: output.transpose(0, 1)"
        raise ValueError(
            f"mask: wanted shape {tuple(wanted)} for the output {tuple(states.shape)} of {name!r}, "
            f"got {tuple(mask.shape)}{hint}"
        )


def _is_causal(mask: Any) -> bool:
    """Whether a mask says which tokens of one text each token sees: ``[T, T]``, T > 1."""
    if not isinstance(mask, Tensor) or mask.ndim != 2 or not 1 < len(mask) == mask.shape[1]:
        return False
    return bool((mask == torch.ones_like(mask).tril()).all())


def _as_kept(mask: Tensor | None, name: str) -> Tensor:
    """Return a mask ``[B, T]`` of 0 and 1 as bool; one of choices, ``[B, C, T]``, is flattened."""
    if not isinstance(mask, Tensor) or mask.ndim not in (2, 3):
        got = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"mask: wanted a tensor [B, T] for {name!r}, got {got}")
    mask = mask.detach().flatten(0, -2)
    if mask.dtype != torch.bool:
        if not bool(((mask == 0) | (mask == 1)).all()):
            raise ValueError(f"mask: wanted 0 and 1 alone for {name!r}, got other values")
        mask = mask.bool()
    empty = (~mask.any(1)).nonzero().flatten()
    if len(empty):
        raise ValueError(f"mask: wanted a token in every row, got none in row {int(empty[0])}")
    return mask


class MaskFinder:
    """Finds the mask among the arguments of each call of a model.

    If `given` is None, the names in `PADDING_IS_TRUE` are searched, and False says that nothing is
    padding. A string names the argument, and a function of ``(args, kwargs)`` returns the mask.
    """

    def __init__(self, core: nn.Module, given: Given) -> None:
        known = given is None or given is False or isinstance(given, str | Tensor)
        if not known and not callable(given):
            raise TypeError(
                "mask: wanted None, False, a tensor [B, T], the name of an argument or a function, "
                f"got {given!r}"
            )
        self.given = given
        self.signature = inspect.signature(core.forward)
        self.model = type(core).__name__
        self.in_samples = hasattr(core, FRAMES)

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name."""
        try:
            bound = self.signature.bind_partial(*args, **kwargs)
        except TypeError:  # the model will say what is wrong
            return dict(kwargs)
        return {**bound.arguments, **kwargs}

    def find(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], named: dict[str, Any], past: int
    ) -> PassMask:
        """Return the mask of a call; `named` is what `arguments` returned."""
        given = self.given
        if given is False:
            return PassMask({}, {}, no_padding=True)
        if isinstance(given, Tensor):
            return PassMask({"": given}, {}, past=past)
        if isinstance(given, str):
            why = {"": f"the call has no {given}"}
            return PassMask({"": _tokens(given, named)}, why, past=past)
        if callable(given):
            why = {"": "the function gave None"}
            return PassMask({"": given(args, kwargs)}, why, past=past)
        return self._search(named, past)

    def _search(self, named: dict[str, Any], past: int) -> PassMask:
        for name in PADDING_IS_TRUE:
            if not self._takes(name, named):
                continue
            names = {"": name}
            if name in HALVES and self._takes(HALVES[name], named):
                names = {"encoder": name, "decoder": HALVES[name]}
            masks = {half: _tokens(one, named) for half, one in names.items()}
            why = {half: f"{self.model} was called without {one}" for half, one in names.items()}
            for half, mask in masks.items():
                if _is_causal(mask):
                    why[half] = (
                        f"{names[half]} is a lower triangle, as causal masks [T, T] are; "
                        f"mask={names[half]!r} takes it as padding"
                    )
                    masks[half] = None
            reads_text = any(isinstance(named.get(text), Tensor) for text in TEXTS)
            not_text = _other_input(named) if reads_text else ""
            return PassMask(masks, why, past=past, not_text=not_text, in_samples=self.in_samples)
        return PassMask({"": None}, {"": f"{self.model} takes no mask"})

    def _takes(self, name: str, named: dict[str, Any]) -> bool:
        return name in self.signature.parameters or name in named


def _other_input(named: Mapping[str, Any]) -> str:
    """Return the first argument of a call that is pictures or sounds; "" if there is none."""
    for name in OTHER_INPUTS:
        if isinstance(named.get(name), Tensor):
            return name
    for name, value in named.items():
        known = name in TEXTS or "mask" in name or not isinstance(value, Tensor)
        if not known and value.is_floating_point() and value.ndim >= _FEWEST_AXES:
            return name
    return ""


def _tokens(name: str, named: dict[str, Any]) -> Any:
    """Return the mask that is argument `name` of a call, in which 1 is a token."""
    mask = named.get(name)
    padding_is_true = PADDING_IS_TRUE.get(name, False)
    return mask == 0 if padding_is_true and isinstance(mask, Tensor) else mask
