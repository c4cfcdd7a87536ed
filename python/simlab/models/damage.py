"""Models that cannot be loaded as they are, or of which the library leaves parts out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from simlab.errors import UserError, argument, first_line
from simlab.models.sources import ModelSource
from simlab.store.console import note_once
from simlab.store.files import read_json

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

# Ends of names of constants that older versions of transformers stored: positions, causal masks.
_CONSTANTS = ("position_ids", "inv_freq", "masked_bias", "attn.bias", "attention.bias")


@contextmanager
def load_errors(source: ModelSource, wanted: str) -> Iterator[None]:
    """Turn what a library says of the files of a model into a UserError of one line.

    Errors are of any type: each configuration, model and reader of files has its own.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        for file in source.files:
            if file.suffix == ".json":  # of a damaged one, the library says no name
                read_json(file)
        place = "" if source.name == str(source.path) else f" in {source.path}"
        raise UserError(
            f"model {source.name}: wanted {wanted}{place}, found: {first_line(error)}"
        ) from error


def require_finite(named_weights: Iterable[tuple[str, torch.Tensor]], source: ModelSource) -> None:
    """Raise UserError if a weight is NaN or infinite."""
    for name, weights in named_weights:
        if not weights.isfinite().all():
            found = "NaN" if weights.isnan().any() else "infinity"
            raise UserError(f"model {source.name}: wanted finite weights, found {found} in {name}")


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


def _first_of(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def note_left_out(model: PreTrainedModel, unexpected: Iterable[str], source: ModelSource) -> None:
    """Note what is not used of a model's files: its own code, and weights without a place.

    transformers leaves both out without a word, and the rows are then another model's: one without
    the bidirectional attention of the author's code, or the one beneath an adapter. Weights of
    other heads, among the `unexpected` ones, are left out of any encoder.
    """
    code = getattr(model.config, "auto_map", None) or {}
    if any(name.startswith("AutoModel") for name in code):
        note_once(
            f"model {source.name}: its own code ({', '.join(sorted({*code.values()}))}) is not "
            f"run; transformers' {model.config.model_type!r} is in its place; "
            f"{argument('modules', of='extract')} takes a function that loads it (module:function)"
        )
    parts = {name for name, _ in model.base_model.named_children()} - {"pooler"}
    prefix = f"{model.base_model_prefix}."
    own = [n for n in unexpected if n.removeprefix(prefix).partition(".")[0] in parts]
    left = sorted(name for name in own if not name.endswith(_CONSTANTS))
    if left:
        note_once(
            f"model {source.name}: weights of its files are left out, because its configuration "
            f"describes a model without them: {_first_of(left)}"
        )
