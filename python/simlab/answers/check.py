"""Check whether two models are the same, layer by layer, by the noise of the first.

The states are of every token of the texts: of a model under many circumstances, or of a file.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from simlab.answers.subjects import read_texts, split_words
from simlab.bounds import Count, bounded
from simlab.errors import UserError, first_line, require_known
from simlab.models.batches import batches, reads_padding
from simlab.models.checkpoint import Checkpoint, length_of
from simlab.models.load import load_encoder, load_switched, load_tokenizer
from simlab.models.place import AUTO, PRECISIONS, moved, place
from simlab.models.states import HiddenStates
from simlab.models.tokens import encode
from simlab.representations.array_files import in_order
from simlab.store.console import note, progress

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from simcore.testing import AlikeResult
    from simlab.tasks import Examples, TaskOptions

    States = Mapping[str, torch.Tensor]

_DUMP = ".safetensors"
_LOUD = 0.02  # noise that is a larger share of a layer hides faults, and is told
ALLOWED = ("scaled", "permuted", "rotated")
_IDS, _MASK = ("input_ids", "token_ids"), "attention_mask"
_OTHER = 3  # texts in a batch of the run with other batches
_PADDING = 8  # tokens of padding that every text gets, in the run that pads


@dataclass(frozen=True)
class Reader:
    """A model that reads texts, tokenised already; with an `adapter` in its modules, two models."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    encoded: list[dict[str, Any]]
    batch_size: int
    adapter: PeftModel | None = None

    def as_base(self) -> AbstractContextManager[None]:
        """Return a context in which the model is without its adapter."""
        return nullcontext() if self.adapter is None else self.adapter.disable_adapter()

    @cached_property
    def alike(self) -> bool:
        """Whether only texts of equally many tokens may share a batch."""
        return reads_padding(self.model, self.tokenizer, self.encoded, self.batch_size)

    def states(
        self,
        batch_size: int | None = None,
        length: int | None = None,
        reverse: bool = False,
        model: PreTrainedModel | None = None,
        alike: bool | None = None,
    ) -> States:
        """Return the states of all tokens of all texts in order, [tokens, p] for each layer."""
        import torch

        model, count = model or self.model, len(self.encoded)
        encoded = self.encoded[::-1] if reverse else self.encoded
        states_of, size = HiddenStates(model.eval()), batch_size or self.batch_size
        alike = length is None and (self.alike if alike is None else alike)
        layers: dict[int, list[torch.Tensor]] = {}
        with torch.inference_mode():
            for numbers, batch in batches(
                self.tokenizer, encoded, size, model.device, length, alike=alike
            ):
                mask = batch[_MASK].bool()

                def kept(states: torch.Tensor, mask: torch.Tensor = mask) -> torch.Tensor:
                    return states[mask].cpu()

                for layer, rows in enumerate(states_of(batch, kept)):
                    texts = layers.setdefault(layer, [torch.empty(0)] * count)
                    for number, part in zip(numbers, rows.split(mask.sum(1).tolist()), strict=True):
                        texts[count - 1 - number if reverse else number] = part
        return {f"layer.{layer}": torch.cat(texts) for layer, texts in layers.items()}

    def circumstances(self, dtype: torch.dtype) -> Iterator[tuple[str, States]]:
        """Yield the states under each circumstance that should make no difference, by its name.

        `dtype` is the other model's, which is one of them where it has fewer digits.
        """
        import torch

        yield "batch size 1", self.states(1)
        yield f"batch size {_OTHER}, texts reversed", self.states(_OTHER, reverse=True)
        longest = max(len(one["input_ids"]) for one in self.encoded)
        length = min(longest + _PADDING, self.tokenizer.model_max_length)
        if not self.alike:
            yield f"padded to {length} tokens", self.states(length=length)
        threads = torch.get_num_threads()
        torch.set_num_threads(1 if threads > 1 else 2)
        try:
            yield f"{torch.get_num_threads()} threads", self.states()
        finally:
            torch.set_num_threads(threads)
        for name in ("eager", "sdpa"):
            with _attention(self.model, name) as changed:
                if changed:
                    yield f"{name} attention", self.states()
        if torch.finfo(dtype).eps > torch.finfo(self.model.dtype).eps:
            rounded = copy.deepcopy(self.model)
            rounded.to(dtype=dtype)  # type: ignore[call-arg]
            yield str(dtype).removeprefix("torch."), self.states(model=rounded)
        yield "float64", self.states(model=copy.deepcopy(self.model).double())


@contextmanager
def _attention(model: PreTrainedModel, name: str) -> Iterator[bool]:
    """Let the model compute its attention in another way, and tell whether it does."""
    own = model.config._attn_implementation
    try:
        model.set_attn_implementation(name)
    except (ValueError, ImportError) as error:
        note(f"noise is measured without {name} attention: {first_line(error)}")
        yield False
        return
    try:
        yield name != own
    finally:
        model.set_attn_implementation(own)


class Dump(Mapping[str, "torch.Tensor"]):
    """The states of a safetensors file of any engine, one layer in memory at a time.

    The file has ``input_ids`` or ``token_ids``, and layers of the same tokens: ``[tokens, p]``, all
    texts one after another; or ``[texts, t, p]`` with an ``attention_mask [texts, t]``.
    """

    def __init__(self, path: Path) -> None:
        from safetensors import SafetensorError, safe_open

        self.path = path
        try:
            self._file = safe_open(path, "pt")
        except (SafetensorError, OSError) as error:
            raise UserError(
                f"{path}: wanted a safetensors file, found: {first_line(error)}"
            ) from error
        names = list(self._file.keys())
        shapes = {name: self._file.get_slice(name).get_shape() for name in names}
        ids = next((name for name in _IDS if name in shapes), None)
        if ids is None:
            raise UserError(f"{path}: wanted {' or '.join(_IDS)}, found {', '.join(shapes)}")
        self._mask = None
        self.tokens = self._file.get_tensor(ids)
        if self.tokens.dim() == 2:
            if shapes.get(_MASK) != shapes[ids]:
                raise UserError(f"{path}: wanted {_MASK} {shapes[ids]}, found {shapes.get(_MASK)}")
            self._mask = self._file.get_tensor(_MASK).bool()
            self.tokens = self.tokens[self._mask]
        self._names = in_order([name for name in shapes if name not in (*_IDS, _MASK)])
        for name in self._names:
            if len(shapes[name]) != len(shapes[ids]) + 1 or shapes[name][:-1] != shapes[ids]:
                raise UserError(
                    f"{path}, {name}: wanted {[*shapes[ids], 'p']} as in {ids}, found "
                    f"{shapes[name]}"
                )

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._names:
            raise KeyError(name)
        layer = self._file.get_tensor(name)
        return layer if self._mask is None else layer[self._mask]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def require_same_tokens(
    wanted: Sequence[Sequence[int]],
    found: Sequence[int],
    ids: Sequence[str],
    names: tuple[str, str],
) -> None:
    """Raise UserError with the first place where `found` is not the tokens of all texts."""
    place = 0
    for text, tokens in zip(ids, wanted, strict=True):
        for position, token in enumerate(tokens):
            other = found[place] if place < len(found) else "the end"
            if token != other:
                raise UserError(
                    f"{names[1]}: wanted the tokens that {names[0]} reads, found other ones from "
                    f"token {position} of {text} on: {token} and {other}"
                )
            place += 1
    if place < len(found):
        raise UserError(
            f"{names[1]}: wanted the {place} tokens that {names[0]} reads, found {len(found)}"
        )


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
    require_known("weights", weights, PRECISIONS)
    names = _names(models)
    is_name = [isinstance(model, str | Path) for model in models]
    is_name[1] &= not names[1].endswith(_DUMP)
    a, b = (Checkpoint.open(m) if n else m for m, n in zip(models, is_name, strict=True))
    opened = [one for one in (a, b) if isinstance(one, Checkpoint)]
    task = read_texts(texts, opened, task_options, limit)
    length = length_of(opened, max_length)
    how: Any = {"batch_size": batch_size, "weights": weights, "device": device}
    reader = None
    if isinstance(a, Checkpoint) and isinstance(b, Checkpoint) and b.is_adapter_of(a):
        reader = _reader_of_both(b, tokenizer, task.heldout, length, **how)
    reader = reader or _reader(a, opened, tokenizer, task.heldout, length, **how)
    tokens = [one["input_ids"] for one in reader.encoded]
    dtype = reader.model.dtype
    if isinstance(b, str | Path):
        other = Dump(Path(b))
        require_same_tokens(tokens, other.tokens.tolist(), task.heldout.ids, names)
        states: Any = other
        dtype = max((other[name].dtype for name in other), key=_eps, default=dtype)
    elif reader.adapter is not None:
        with reader.as_base():
            alike = reader.alike
        states = reader.states(alike=alike)
    else:
        second = _reader(b, opened[::-1], tokenizer, task.heldout, length, **how)
        found = [token for one in second.encoded for token in one["input_ids"]]
        require_same_tokens(tokens, found, task.heldout.ids, names)
        sides = [_own_side(one.tokenizer) for one in (reader, second)]
        if sides[0] != sides[1]:
            second.tokenizer.padding_side = sides[1]
        states, dtype = second.states(alike=reader.alike), second.model.dtype
        del second
    with reader.as_base(), progress("measuring the noise", 1) as advance:
        noise = dict(reader.circumstances(dtype))
        own = reader.states()
        advance(1)
    try:
        result = judge_alike(own, states, noise, labels=_labels(reader, task.heldout.ids))
    except (ValueError, TypeError) as error:
        raise UserError(f"{names[0]} and {names[1]}: {error}") from error
    _tell_of_noise(names[0], result)
    return result


def _names(models: Sequence[str | Path | PreTrainedModel]) -> tuple[str, str]:
    if len(models) != 2:
        raise UserError(f"models: wanted two models, A and B, found {len(models)}")
    a, b = (
        str(model) if isinstance(model, str | Path) else f"{side} ({type(model).__name__})"
        for side, model in zip("AB", models, strict=True)
    )
    if a.endswith(_DUMP):
        raise UserError(f"{a}: wanted a model as A, because its noise is measured; a file may be B")
    return a, b


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


def _reader_of_both(
    adapter: Checkpoint, tokenizer: Any, examples: Examples, length: int, **how: Any
) -> Reader | None:
    """Return a reader that has an adapter and its base in one copy of the weights, if they can."""
    where = place(adapter, how["weights"], how["device"], in_blocks=False)
    if (switched := load_switched(adapter, how["weights"])) is None:
        return None
    tokenizer = tokenizer or load_tokenizer(adapter)
    model, encoded = moved(switched[0], where), encode(tokenizer, examples, length)
    return Reader(model, tokenizer, encoded, how["batch_size"], switched[1])


def _labels(reader: Reader, ids: Sequence[str]) -> list[str]:
    """Return the text, the place and the token of each row."""
    return [
        f"{text}, token {place} {token!r}"
        for text, one in zip(ids, reader.encoded, strict=True)
        for place, token in enumerate(reader.tokenizer.convert_ids_to_tokens(one["input_ids"]))
    ]
