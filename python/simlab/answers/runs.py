"""The states of every token of texts: of a model under many circumstances, or of a file."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError, first_line
from simlab.models.alone import reads_padding
from simlab.models.batches import batches
from simlab.models.states import HiddenStates
from simlab.representations.array_files import in_order
from simlab.store.console import note

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    States = Mapping[str, torch.Tensor]

_IDS, _MASK = ("input_ids", "token_ids"), "attention_mask"
_OTHER = 3  # texts in a batch of the run with other batches
_PADDING = 8  # tokens of padding that every text gets, in the run that pads


@dataclass(frozen=True)
class Reader:
    """A model that reads texts, tokenised already."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    encoded: list[dict[str, Any]]
    batch_size: int

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
