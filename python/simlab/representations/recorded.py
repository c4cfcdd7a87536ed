"""Rows of the modules of any model: `simcore.record` around one pass over the examples.

The kind of such a folder is ``modules-<pool>``, and its layers are the modules in the order in
which they run; the manifest has their names (`names`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simlab.errors import UserError, argument, first_line
from simlab.models.batches import batches, reads_padding
from simlab.models.built import BuiltModel
from simlab.models.load import load_encoder, load_tokenizer
from simlab.models.place import AUTO, OFFLOAD, SPREAD, moved, place
from simlab.models.sources import ModelSource, load_errors
from simlab.models.tokens import encode, give_padding
from simlab.representations.folder import LayerWriter
from simlab.store.console import progress
from simlab.store.runtime import best_device

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from simlab.tasks import Examples
    from simlab.tasks.files import Picture

KIND = "modules"
_PROCESSOR = "preprocessor_config.json"  # of images
TOKENS, POSITIONS, FLATTEN = "tokens", "positions", "flatten"  # pools of `simcore.record`
POOLS = ("first", "last", "mean", TOKENS, FLATTEN, "spatial-mean", POSITIONS)


def kind_of(pool: str | None) -> str:
    """Return the kind of the rows that a pool makes of modules."""
    return KIND if pool is None else f"{KIND}-{pool}"


KINDS = tuple(kind_of(pool) for pool in (None, *POOLS))
# How messages of `record` begin that name an argument.
_ARGUMENTS = {name: argument(name) for name in ("modules", "pool")} | {
    "max_memory": argument("batch_size")
}


@dataclass(frozen=True)
class Recording:
    """Which outputs to record, and how; the other fields are as in `ExtractOptions`."""

    # Names of modules, and globs over names: `*` stops at a dot, `**` does not.
    modules: tuple[str, ...]
    pool: str | None  # a name in `POOLS`; None if every module gives a row for each example
    max_length: int
    batch_size: int
    dtype: str
    weights: str
    device: str

    @property
    def kind(self) -> str:
        """Return the kind of the folder."""
        return kind_of(self.pool)


@dataclass(frozen=True)
class _Feed:
    """A model and the examples that it reads."""

    model: nn.Module
    ids: tuple[str, ...]  # of the examples
    tokens: list[list[str]] | None  # of every example, as texts; None for images
    fed: Iterator[tuple[np.ndarray, Any]]  # row numbers and inputs of every batch
    call: Callable[[Any], Any]  # runs the model on the inputs of a batch


def record_to(
    folder: Path,
    source: ModelSource | BuiltModel,
    examples: Examples,
    recording: Recording,
    identity: dict[str, Any],
) -> None:
    """Run a model on all examples, and write the rows of its modules into a folder."""
    is_text, seed = examples.images is None, identity["random_init_seed"]
    with TemporaryDirectory(prefix=".weights-", dir=folder) as scratch:
        given = _loaded(source, recording, seed, Path(scratch), is_text)
        if is_text:
            feed = _texts(source, examples.each_choice(), recording, *given)
        else:
            feed = _images(source, examples, recording, *given)
        _record(folder, source, feed, recording, identity, examples.numbers)


def _record(
    folder: Path,
    source: ModelSource | BuiltModel,
    feed: _Feed,
    recording: Recording,
    identity: dict[str, Any],
    examples: np.ndarray,
) -> None:
    import torch

    from simcore import record

    writer: LayerWriter | None = None
    options: dict[str, Any] = {"pool": recording.pool}
    if feed.tokens is None:
        options["mask"] = False  # nothing of an image is padding
    title = f"recording {identity['label']}"
    with _user_errors(source.name):
        tape = record(feed.model, list(recording.modules), **options)
    with torch.inference_mode(), progress(title, len(feed.ids)) as advance, tape:
        for numbers, inputs in feed.fed:
            with _user_errors(source.name):
                feed.call(inputs)
                layers = {name: layer.float() for name, layer in tape.layers().items()}
            if writer is None:
                counts = _row_counts(feed, recording.pool, len(numbers), layers)
                writer = LayerWriter(folder, recording.kind, counts, recording.dtype)
                writer.create([layer.shape[1] for layer in layers.values()])
            _put(writer, numbers, layers, recording.pool)
            tape.clear()
            advance(len(numbers))
    assert writer is not None
    of_rows = np.repeat(examples, writer.counts)
    row_ids = _row_ids(feed, recording.pool, writer.counts)
    writer.finish(row_ids, {**identity, "names": list(tape.names)}, of_rows)


def _row_counts(feed: _Feed, pool: str | None, batch: int, layers: dict[str, Tensor]) -> np.ndarray:
    """Return the number of rows of every example, int64 [n], from the layers of a batch."""
    if pool == TOKENS and feed.tokens is not None:
        return np.array([len(tokens) for tokens in feed.tokens], np.int64)
    several, uneven = divmod(len(next(iter(layers.values()))), batch)
    return np.full(len(feed.ids), 1 if uneven else several, np.int64)


def _put(
    writer: LayerWriter, examples: np.ndarray, layers: dict[str, Tensor], pool: str | None
) -> None:
    """Write the rows of a batch, of which a pool may make several an example, to their places."""
    counts = writer.counts[examples]
    starts = (np.cumsum(writer.counts) - writer.counts)[examples]
    for number, (name, layer) in enumerate(layers.items()):
        if len(layer) != counts.sum():
            raise UserError(
                f"{argument('pool', pool)}: wanted modules that all give {counts.sum()} rows for "
                f"{len(examples)} examples, found {len(layer)} rows of {name!r}"
            )
        parts = np.split(layer.numpy(), np.cumsum(counts)[:-1])
        for start, part in zip(starts.tolist(), parts, strict=True):
            writer.put_rows(number, start, part)


def _row_ids(feed: _Feed, pool: str | None, counts: np.ndarray) -> list[str]:
    """Return an id for each row: of the example, and the number of the row in it."""
    if pool not in (TOKENS, POSITIONS):
        return list(feed.ids)
    row_ids = []
    for number, (example, count) in enumerate(zip(feed.ids, counts, strict=True)):
        tokens = feed.tokens[number] if feed.tokens is not None else [""] * count
        ends = [f":{token}" if token else "" for token in tokens]
        row_ids += [f"{example}:{row}{end}" for row, end in enumerate(ends)]
    return row_ids


def _loaded(
    source: ModelSource | BuiltModel,
    recording: Recording,
    seed: int | None,
    scratch: Path,
    is_text: bool,
) -> tuple[Any, Any, str]:
    """Return the model on its device, its tokenizer or what prepares images, and the device."""
    device = recording.device
    if isinstance(source, BuiltModel):
        if device in (OFFLOAD, SPREAD):
            raise UserError(
                f"{argument('device', device)}: wanted a model of transformers, found {source.name}"
            )
        device = best_device() if device == AUTO else device
        return source.model.to(device), source.prepare, device
    device = place(source, recording.weights, device, random_init=seed is not None)
    prepare = load_tokenizer(source) if is_text else _processor_of(source)
    how: dict[str, Any] = {"weights": recording.weights, "device": recording.device}
    return moved(load_encoder(source, seed, scratch=scratch, **how), device), prepare, device


def _texts(
    source: ModelSource | BuiltModel,
    examples: Examples,
    recording: Recording,
    model: Any,
    tokenizer: Any,
    device: str,
) -> _Feed:
    if isinstance(source, BuiltModel):
        if not hasattr(tokenizer, "pad"):
            raise UserError(
                f"model {source.name}: wanted a tokenizer beside the model for a task of texts, "
                f"found {'none' if tokenizer is None else type(tokenizer).__name__}"
            )
        give_padding(tokenizer, source.name)
    elif model.config.is_encoder_decoder:
        model = model.get_encoder()
    encoded = encode(tokenizer, examples, recording.max_length)
    # All rows of `flatten` are as wide as the longest text.
    length = recording.max_length if recording.pool == FLATTEN else None
    tokens = [
        cast("list[str]", tokenizer.convert_ids_to_tokens(one["input_ids"])) for one in encoded
    ]
    size = recording.batch_size
    rows = partial(_rows_of, model, source.name, recording)
    alike = reads_padding(model, tokenizer, encoded, size, length=length, rows=rows)
    fed = batches(tokenizer, encoded, size, device, length, alike=alike)
    return _Feed(model, examples.ids, tokens, fed, lambda batch: model(**batch))


def _rows_of(
    model: nn.Module, name: str, recording: Recording, batch: dict[str, Tensor]
) -> list[Tensor]:
    """Return the rows of the modules of a model `name` for one batch."""
    from simcore import record

    with _user_errors(name):
        tape = record(model, list(recording.modules), pool=recording.pool)
    with tape:
        model(**batch)
    with _user_errors(name):
        return [layer for layer in tape.layers().values() if layer.is_floating_point()]


def _images(
    source: ModelSource | BuiltModel,
    examples: Examples,
    recording: Recording,
    model: Any,
    prepare: Any,
    device: str,
) -> _Feed:
    assert examples.images is not None
    precision = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)

    def call(batch: Tensor) -> Any:
        values = batch.to(precision or batch.dtype) if batch.is_floating_point() else batch
        return model(values) if isinstance(source, BuiltModel) else model(pixel_values=values)

    fed = _image_batches(examples.images, prepare, recording.batch_size, device)
    return _Feed(model, examples.ids, None, fed, call)


def _processor_of(source: ModelSource) -> Callable[[Any], torch.Tensor] | None:
    """Return the function that prepares an image for a model of transformers; None without one."""
    if not (source.path / _PROCESSOR).is_file():
        return None
    from transformers import AutoImageProcessor

    with load_errors(source, f"an image processor in {_PROCESSOR}"):
        # The other backend rounds otherwise, and is there on some machines alone.
        how: dict[str, Any] = {"backend": "pil", "local_files_only": True}
        processor = AutoImageProcessor.from_pretrained(source.path, **how)

    def prepare(image: Any) -> torch.Tensor:
        return processor(image, return_tensors="pt")["pixel_values"][0]

    return prepare


def _image_batches(
    pictures: Sequence[Picture],
    prepare: Callable[[Any], torch.Tensor] | None,
    batch_size: int,
    device: str,
) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
    """Yield images in their order: row numbers [b] and values [b, C, H, W].

    `prepare` makes a tensor [C, H, W] of an image of PIL; None takes the values in [0, 1] as they
    are, with one channel if the images have no colours.
    """
    import torch

    for start in range(0, len(pictures), batch_size):
        some = pictures[start : start + batch_size]
        if prepare is None:
            tensors = [torch.from_numpy(picture.array()) for picture in some]
        else:
            tensors = [torch.as_tensor(prepare(picture.image())) for picture in some]
        other = next((image for image in tensors if image.shape != tensors[0].shape), None)
        if other is not None:
            raise UserError(
                "task: wanted images of one size, or a model that says how to prepare images, "
                f"found {list(tensors[0].shape)} and {list(other.shape)}"
            )
        yield np.arange(start, start + len(some)), torch.stack(tensors).to(device)


@contextmanager
def _user_errors(name: str) -> Iterator[None]:
    """Turn errors of `record`, and of a model that does not take its inputs, into a UserError."""
    try:
        yield
    except (AssertionError, LookupError, TypeError, ValueError, RuntimeError) as error:
        reason = first_line(error)
        start, colon, rest = reason.removeprefix(f"{type(error).__name__}: ").partition(":")
        if start in _ARGUMENTS:
            rest = rest.replace(" or a function", "")  # which no command takes
            raise UserError(f"{_ARGUMENTS[start]}{colon}{rest}") from error
        raise UserError(
            f"model {name}: wanted a model that takes these examples, found: {reason}"
        ) from error
