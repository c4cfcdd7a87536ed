"""Check whether two models are the same, layer by layer, by the noise of the first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from simlab.answers.runs import Dump, Reader, require_same_tokens
from simlab.answers.subjects import read_texts, split_words
from simlab.bounds import Count, bounded
from simlab.errors import UserError, require_known
from simlab.models.checkpoint import Checkpoint, length_of
from simlab.models.load import load_encoder, load_tokenizer
from simlab.models.place import AUTO, PRECISIONS, moved, place
from simlab.models.tokens import encode
from simlab.store.console import note, progress

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from simcore.testing import AlikeResult
    from simlab.tasks import Examples, TaskOptions

_DUMP = ".safetensors"
_LOUD = 0.02  # noise that is a larger share of a layer hides faults, and is told
ALLOWED = ("scaled", "permuted", "rotated")


@bounded
def check(
    *models: str | Path | PreTrainedModel,
    texts: str | Path | None = None,
    limit: Count = 32,
    max_length: Count | None = None,
    batch_size: Count = 8,
    weights: str = PRECISIONS[-1],
    device: str = AUTO,
    tokenizer: PreTrainedTokenizerBase | None = None,
    task_options: TaskOptions | None = None,
) -> AlikeResult:
    """Judge layer by layer whether model B is the same as model A, by the noise of A itself.

    A runs under circumstances that should make no difference: other batches, padding, order of
    texts, threads, attention, float64, and the precision of B if that is lower. How far its states
    move is the noise; B is equal as long as it is no further away.

    Parameters
    ----------
    models
        A and B: names of the hub, folders, revisions (``name@revision``); B also a safetensors file
        of another engine's states with their ``input_ids``; in Python also models of transformers.
        Behind them the texts, if they are a file or a named task.
    texts
        As for `compare`.
    limit
        As for `compare`.
    max_length
        Tokens kept per text; None is as in the fine-tuning of the first model that was, else 64.
    batch_size
        Texts per forward pass.
    weights
        As for `compare`.
    device
        Where models run: ``cpu``, ``cuda``; ``auto`` is a GPU if there is one.
    tokenizer
        In Python: the tokenizer of models that are not named.
    task_options
        Columns and split of the texts.

    Returns
    -------
    AlikeResult
        The verdict of each layer (`simcore.testing.AlikeResult`); its text names the first that
        diverges, and the tokens that are furthest away.

    Raises
    ------
    UserError
        There are not two models, a model or file is unknown or damaged, A is no model, the models
        read other tokens, or A has states that are not finite.

    Examples
    --------
    >>> from simlab import check
    >>> check("minilm", "minilm", limit=4).verdict
    'equal bits'
    """
    from simcore.testing import judge_alike

    models, texts = split_words(models, texts)
    if len(models) != 2:
        raise UserError(f"models: wanted two models, A and B, found {len(models)}")
    require_known("weights", weights, PRECISIONS)
    names = _name(models[0], "A"), _name(models[1], "B")
    if names[0].endswith(_DUMP):
        raise UserError(
            f"{names[0]}: wanted a model as A, because its noise is measured; a file may be B"
        )
    is_name = [isinstance(model, str | Path) for model in models]
    is_name[1] &= not names[1].endswith(_DUMP)
    a, b = (Checkpoint.open(m) if n else m for m, n in zip(models, is_name, strict=True))
    opened = [one for one in (a, b) if isinstance(one, Checkpoint)]
    task = read_texts(texts, opened, task_options, limit)
    length = length_of(opened, max_length)
    how: Any = {"batch_size": batch_size, "weights": weights, "device": device}
    reader = _reader(a, opened, tokenizer, task.heldout, length, **how)
    tokens = [one["input_ids"] for one in reader.encoded]
    dtype = reader.model.dtype
    if isinstance(b, str | Path):
        other = Dump(Path(b))
        require_same_tokens(tokens, other.tokens.tolist(), task.heldout.ids, names)
        states: Any = other
        dtype = max((other[name].dtype for name in other), key=_eps, default=dtype)
    else:
        second = _reader(b, opened[::-1], tokenizer, task.heldout, length, **how)
        found = [token for one in second.encoded for token in one["input_ids"]]
        require_same_tokens(tokens, found, task.heldout.ids, names)
        sides = [_own_side(one.tokenizer) for one in (reader, second)]
        if sides[0] != sides[1]:
            second.tokenizer.padding_side = sides[1]
        states, dtype = second.states(alike=reader.alike), second.model.dtype
        del second
    with progress("measuring the noise", 1) as advance:
        noise = dict(reader.circumstances(dtype))
        advance(1)
    try:
        labels = _labels(reader, task.heldout.ids)
        result = judge_alike(reader.states(), states, noise, labels=labels)
    except (ValueError, TypeError) as error:
        raise UserError(f"{names[0]} and {names[1]}: {error}") from error
    _tell_of_noise(names[0], result)
    return result


def _tell_of_noise(name: str, result: AlikeResult) -> None:
    """Note the layer whose noise hides faults most, if there is one."""
    loud = [layer for layer in result.layers if layer.noise > _LOUD]  # nan of missing ones is not
    if loud:
        loudest = max(loud, key=lambda layer: layer.noise)
        note(
            f"{name} differs from itself by {loudest.noise:.1%} of {loudest.label} "
            f"({loudest.noise_from}): faults that are smaller are not seen"
        )


def _own_side(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the side where the files of a tokenizer say that it pads."""
    return tokenizer.init_kwargs.get("padding_side") or type(tokenizer).padding_side


def _eps(dtype: torch.dtype) -> float:
    import torch

    return torch.finfo(dtype).eps


def _name(model: Any, side: str) -> str:
    return str(model) if isinstance(model, str | Path) else f"{side} ({type(model).__name__})"


def _reader(
    model: Any,
    opened: Sequence[Checkpoint],
    tokenizer: PreTrainedTokenizerBase | None,
    examples: Examples,
    length: int,
    *,
    batch_size: int,
    weights: str,
    device: str,
) -> Reader:
    """Return a model that is loaded or given, with its tokenizer, or that of the other model."""
    source = model if isinstance(model, Checkpoint) else None
    if source is None and tokenizer is None and not opened:
        raise UserError("tokenizer: wanted the tokenizer of models that are not named, found none")
    tokenizer = tokenizer or load_tokenizer(source or opened[0])
    encoded = encode(tokenizer, examples, length)
    if source is not None:
        where = place(source, weights, device, in_blocks=False)
        with TemporaryDirectory() as scratch:
            model = load_encoder(source, weights=weights, device=device, scratch=Path(scratch))
        model = moved(model, where)
    return Reader(model, tokenizer, encoded, batch_size)


def _labels(reader: Reader, ids: Sequence[str]) -> list[str]:
    """Return the text, the place and the token of each row."""
    return [
        f"{text}, token {place} {token!r}"
        for text, one in zip(ids, reader.encoded, strict=True)
        for place, token in enumerate(reader.tokenizer.convert_ids_to_tokens(one["input_ids"]))
    ]
