"""What the files of a model lack, have in excess, or have that is no number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from simlab.errors import UserError, argument
from simlab.models.classes import is_quantised
from simlab.models.place import loaded_weights
from simlab.store.console import note_once

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from simlab.models.sources import ModelSource

# Ends of names of constants that older versions of transformers stored: positions, causal masks.
_CONSTANTS = ("position_ids", "inv_freq", "masked_bias", "attn.bias", "attention.bias")


def require_finite(model: PreTrainedModel, fresh: dict[str, str], source: ModelSource) -> None:
    """Raise UserError if a weight that the files gave is NaN or infinite."""
    for name, weight in loaded_weights(model, fresh):
        # Integers are finite, and torchao's own weights answer no such question.
        if not is_quantised(weight) and not weight.isfinite().all():
            number = "NaN" if weight.isnan().any() else "infinity"
            raise UserError(f"model {source.name}: wanted finite weights, found {number} in {name}")


def require_encoder(
    model: PreTrainedModel, fresh: dict[str, str], unused: Sequence[str], source: ModelSource
) -> None:
    """Raise UserError if weights of the encoder are in `fresh`; a pooler belongs to the head.

    `unused` are the weights of the files without a place in the model, under another name perhaps.
    """
    prefix = "" if model.base_model is model else f"{model.base_model_prefix}."
    lost = [name for name in fresh if name.startswith(prefix) and "pooler." not in name]
    if lost:
        lost[0] += fresh[lost[0]]
        others = f"; left over in its files: {_first_of(unused)}" if unused else ""
        raise UserError(
            f"model {source.name}: wanted weights for the whole encoder as {source.path} "
            f"describes it, found no weights, or weights of another shape, for {_first_of(lost)}"
            f"{others}"
        )


def note_left_out(model: PreTrainedModel, unused: Iterable[str], source: ModelSource) -> None:
    """Note that a model's own code, or weights of its encoder, are not used.

    transformers ignores both silently, and the rows then belong to another model: one without the
    bidirectional attention of the author's code, or the model beneath an adapter. Weights of other
    heads are left out of any encoder.
    """
    code = getattr(model.config, "auto_map", None) or {}
    if any(name.startswith("AutoModel") for name in code):
        note_once(
            f"model {source.name}: its own code ({', '.join(sorted({*code.values()}))}) is not "
            f"run; transformers' {model.config.model_type!r} is in its place; "
            f"{argument('modules', of='extract')} takes a function that loads it (module:function)"
        )
    modules = {name for name, _ in model.base_model.named_children()} - {"pooler"}
    prefix = f"{model.base_model_prefix}."
    inner = [name for name in unused if name.removeprefix(prefix).partition(".")[0] in modules]
    left = sorted(name for name in inner if not name.endswith(_CONSTANTS))
    if left:
        note_once(
            f"model {source.name}: weights of its files are left out, because its configuration "
            f"describes a model without them: {_first_of(left)}"
        )


def _first_of(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
