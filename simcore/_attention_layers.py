"""The arguments of functions of attention: layers of heads, and which of their words count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simcore._grid.inputs import Array, as_tensor, check_device, check_same_device
from simcore._grid.one_operator import is_traced
from simcore._grid.options import check_count

Attention = Sequence[Array] | Array  # the attention of one layer
Lengths = Sequence[int] | Array
Mask = Sequence[Sequence[int]] | Array
LARGEST_WEIGHT = 1e140  # float64 holds sums of squares and of p log p of smaller weights


@dataclass(frozen=True)
class Words:
    """The words of the sentences of padded layers."""

    option: str  # the argument that says which words they are
    spans: list[tuple[int, int]]  # the first word of each sentence, and the one after the last
    size: int | None = None  # the T of the padded layers, if the argument says it


def as_words(lengths: Lengths | None, mask: Mask | None) -> Words | None:
    if mask is None:
        ends = _as_lengths(lengths)
        return None if ends is None else Words("lengths", [(0, end) for end in ends])
    if lengths is not None:
        raise ValueError("mask: wanted None beside lengths, got both")
    if torch.compiler.is_compiling():
        raise TypeError(
            "mask: wanted lengths or a list of [H, t, t] under torch.compile, got a mask"
        )
    array = mask.detach().cpu().numpy() if isinstance(mask, Tensor) else np.asarray(mask)
    if array.dtype.kind not in "biuf" or array.ndim != 2:
        got = f"{array.dtype} {array.shape}"
        raise ValueError(f"mask: wanted an array [S, T] of 0 and 1, got {got}")
    if not ((array == 0) | (array == 1)).all():
        raise ValueError("mask: wanted 0 and 1 alone, got other values")
    # The words of a sentence are one span; padding may be on either side.
    spans = []
    for i, row in enumerate(array):
        places = row.nonzero()[0].tolist()
        if not places:
            raise ValueError(f"mask[{i}]: wanted at least one word, got none")
        start, end = places[0], places[-1] + 1
        if end - start != len(places):
            raise ValueError(
                f"mask[{i}]: wanted words without padding between them, got {len(places)} words "
                f"at places {start} to {end - 1}"
            )
        spans.append((start, end))
    return Words("mask", spans, array.shape[1])


def _as_lengths(lengths: Lengths | None) -> list[int] | None:
    if lengths is None:
        return None
    if isinstance(lengths, Tensor) and torch.compiler.is_compiling():
        raise TypeError("lengths: wanted a list under torch.compile, got a tensor")
    if isinstance(lengths, Tensor | np.ndarray) and lengths.ndim == 1:
        values = lengths.tolist()
    elif isinstance(lengths, Sequence):
        values = list(lengths)
    else:
        raise TypeError(f"lengths: wanted one whole number for each sentence, got {lengths!r}")
    return [check_count(value, f"lengths[{i}]", least=None) for i, value in enumerate(values)]


@dataclass(frozen=True)
class Layer:
    """The checked attention of one layer."""

    # One [S, H, T, T] whose padding is behind the words, or [H, t_s, t_s] of every sentence.
    arrays: list[Tensor]
    words: list[int]  # the t_s of every sentence
    from_numpy: bool  # whether the arrays came as numpy

    @property
    def rows(self) -> int:
        """Return the number of rows of all heads."""
        return self.arrays[0].shape[-3] * sum(self.words)

    def sentences(self) -> list[Tensor]:
        """Return views ``[H, t_s, t_s]`` without padding."""
        if self.arrays[0].ndim == 3:
            return self.arrays
        return [s[:, :t, :t] for s, t in zip(self.arrays[0], self.words, strict=True)]


def _padded(batch: Tensor, name: str, words: Words | None, from_numpy: bool) -> Layer:
    count, _, rows, columns = batch.shape
    if rows != columns:
        raise ValueError(f"{name}: wanted shape [S, H, T, T], got {tuple(batch.shape)}")
    if count == 0:
        raise ValueError(f"{name}: wanted at least one sentence, got none")
    if 0 in batch.shape:
        raise ValueError(
            f"{name}: wanted at least one head and one word, got shape {tuple(batch.shape)}"
        )
    if words is None:
        return Layer([batch], [rows] * count, from_numpy)
    option, spans = words.option, words.spans
    if len(spans) != count:
        raise ValueError(
            f"{option}: wanted {count}, one for each sentence of {name}, got {len(spans)}"
        )
    if words.size not in (None, rows):
        raise ValueError(f"{option}: wanted {rows} columns as in {name}, got {words.size}")
    for i, (_, end) in enumerate(spans):
        if not 1 <= end <= rows:
            raise ValueError(f"{option}[{i}]: wanted 1 to {rows} words as in {name}, got {end}")
    counts = [end - start for start, end in spans]
    if not any(start for start, _ in spans):
        return Layer([batch], counts, from_numpy)
    views = [one[:, a:b, a:b] for one, (a, b) in zip(batch, spans, strict=True)]  # [H, t_s, t_s]
    return Layer(views, counts, from_numpy)


def as_layer(layer: Attention, name: str, words: Words | None) -> Layer:
    if isinstance(layer, Tensor | np.ndarray):
        if layer.ndim != 4:
            raise ValueError(
                f"{name}: wanted a list of [H, t, t] arrays or one padded [S, H, T, T], "
                f"got shape {tuple(layer.shape)}"
            )
        batch = as_tensor(layer, name)
        check_device(batch, name)
        return _padded(batch, name, words, isinstance(layer, np.ndarray))
    if not isinstance(layer, Sequence) or isinstance(layer, str):
        raise TypeError(
            f"{name}: wanted a list of [H, t, t] arrays or one padded [S, H, T, T], "
            f"got {type(layer).__name__}"
        )
    if not layer:
        raise ValueError(f"{name}: wanted at least one sentence, got none")
    names = [f"{name}[{s}]" for s in range(len(layer))]
    sentences = [as_tensor(s, label) for s, label in zip(layer, names, strict=True)]
    check_device(sentences[0], names[0])
    for sentence, label in zip(sentences, names, strict=True):
        _check_sentence(sentence, label, sentences[0], names[0])
    from_numpy = all(isinstance(sentence, np.ndarray) for sentence in layer)
    return Layer(sentences, [sentence.shape[1] for sentence in sentences], from_numpy)


def _check_sentence(sentence: Tensor, name: str, first: Tensor, first_name: str) -> None:
    shape = tuple(sentence.shape)
    check_same_device(sentence, name, first, first_name)
    if sentence.ndim != 3 or shape[1] != shape[2]:
        raise ValueError(f"{name}: wanted shape [H, t, t], got {shape}")
    if 0 in shape:
        raise ValueError(f"{name}: wanted at least one head and one word, got shape {shape}")
    if shape[0] != first.shape[0]:
        raise ValueError(
            f"{name}: wanted {first.shape[0]} heads as in {first_name}, got {shape[0]}"
        )


def as_layers(layers: Sequence[Attention] | Array, name: str, words: Words | None) -> list[Layer]:
    if isinstance(layers, Tensor | np.ndarray) and layers.ndim != 5:
        raise ValueError(
            f"{name}: wanted a list of layers or one [L, S, H, T, T] array, "
            f"got shape {tuple(layers.shape)}"
        )
    if not isinstance(layers, Tensor | np.ndarray | Sequence):
        raise TypeError(f"{name}: wanted a sequence of layers, got {type(layers).__name__}")
    if len(layers) == 0:
        raise ValueError(f"{name}: wanted at least one layer, got none")
    return [as_layer(layer, f"{name}[{i}]", words) for i, layer in enumerate(layers)]


def check_same_sentences(layers: list[Layer], name: str, first: Layer) -> None:
    for i, layer in enumerate(layers):
        check_same_device(layer.arrays[0], f"{name}[{i}]", first.arrays[0], "A[0]")
        if len(layer.words) != len(first.words):
            raise ValueError(
                f"{name}[{i}]: wanted {len(first.words)} sentences as in A[0], "
                f"got {len(layer.words)}"
            )
        for s, (words, wanted) in enumerate(zip(layer.words, first.words, strict=True)):
            if words != wanted:
                raise ValueError(
                    f"{name}[{i}]: wanted {wanted} words in sentence {s} as in A[0], got {words}"
                )


def check_words(
    words: Words | None, given: Sequence[Attention] | Array, layers: dict[str, Layer]
) -> None:
    """Raise a ValueError if no layer is padded, or is not padded behind its first words."""
    if words is None:
        return
    if not any(isinstance(layer, Tensor | np.ndarray) for layer in given):
        raise ValueError(
            f"{words.option}: wanted None where no layer is padded, got {words.option} of "
            f"{len(words.spans)} sentences"
        )
    padded = {name: layer.arrays[0] for name, layer in layers.items() if layer.arrays[0].ndim == 4}
    if words.option == "lengths" and padded and not is_traced(next(iter(padded.values()))):
        _check_padding_is_last(padded, [end for _, end in words.spans])


def _check_padding_is_last(padded: dict[str, Tensor], lengths: list[int]) -> None:
    """Raise a ValueError where the last words of a sentence see each other, and no first words."""
    # This is what padding on the left leaves. The last row alone tells most of the others apart.
    names, suspects = list(padded), []
    for batch in padded.values():
        size = batch.shape[-1]
        padding = size - torch.tensor(lengths, device=batch.device)[:, None, None]  # [S, 1, 1]
        is_first = torch.arange(size, device=batch.device) < padding  # [S, 1, T]
        seen = batch[:, :, -1].detach() != 0  # [S, H, T]
        alone = (seen & ~is_first).any(2).all(1) & ~(seen & is_first).flatten(1).any(1)
        suspects.append(alone & (padding > 0).flatten())
    # One synchronisation with the device for all layers.
    for place, s in torch.stack(suspects).nonzero().tolist():
        batch = padded[names[place]]
        first = batch.shape[-1] - lengths[s]
        if not bool(batch[s, :, first:, :first].any()):
            raise ValueError(
                f"lengths[{s}]: wanted the padding of {names[place]} behind the first {lengths[s]} "
                f"words, got {first} columns of zeros before the last {lengths[s]}, as padding on "
                "the left gives; mask= says where the words are"
            )


def check_weights(layers: dict[str, Layer], causal: bool) -> None:
    """Raise a ValueError that names the first layer with float64 weights too large to be summed."""
    largest_sizes = {}
    for name, layer in layers.items():
        if any(array.dtype == torch.float64 for array in layer.arrays):
            wide = [s.detach() for s in layer.sentences() if s.dtype == torch.float64]
            sizes = torch.stack([(s.tril() if causal else s).abs().amax() for s in wide])
            largest_sizes[name] = sizes.masked_fill(~sizes.isfinite(), 0).amax()
    # One synchronisation with the device for all layers.
    largest_of = torch.stack([*largest_sizes.values()]).tolist() if largest_sizes else []
    for name, largest in zip(largest_sizes, largest_of, strict=True):
        if largest > LARGEST_WEIGHT:
            raise ValueError(f"{name}: wanted weights up to {LARGEST_WEIGHT:g}, got {largest:g}")
