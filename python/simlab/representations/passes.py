"""Run a model over examples, and write the rows of its layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.models.alone import reads_padding
from simlab.models.architectures import text_config
from simlab.models.batches import Halving, batches
from simlab.models.load import load_config, load_encoder, load_tokenizer
from simlab.models.place import moved, place
from simlab.models.recognise import blocks_of, classifier_token
from simlab.models.sources import ModelSource
from simlab.models.states import HiddenStates
from simlab.representations.collapse import SameRows, require_other_tokens
from simlab.representations.folder import LayerWriter
from simlab.representations.kinds import (
    ATTENTION,
    KINDS,
    Rows,
    find_rows,
    membership,
    pool_attention,
    pool_states,
)
from simlab.representations.options import ExtractOptions
from simlab.store.console import progress

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from simlab.tasks import Examples


def forward_layers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Rows,
    options: ExtractOptions,
    description: str,
    device: str = "cpu",
) -> Iterator[tuple[np.ndarray, list[torch.Tensor]]]:
    """Run every example once, and yield the rows of every layer batch by batch.

    A batch is the numbers of its examples [b], and for each layer their rows [b, R, p]
    ([b, H, R, R] for attention). An example with fewer than R rows fills the first of them.
    """
    import torch

    moved(model, device).eval()
    states_of, halving = HiddenStates(model), Halving()

    def pool(examples: np.ndarray, batch: dict[str, Any]) -> list[torch.Tensor]:
        member = _member(rows, options.kind, examples, batch)
        if options.kind == ATTENTION:
            return [pool_attention(layer, member) for layer in _attentions(model, batch)]
        return states_of(batch, partial(pool_states, member=member))

    with torch.inference_mode(), progress(description, len(rows.encoded)) as advance:
        for examples, batch in _batches(model, tokenizer, rows, options, device):
            for part, pooled in halving.run(pool, examples, batch):
                yield part, pooled
                advance(len(part))


def _batches(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Rows,
    options: ExtractOptions,
    device: str,
) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    length = None
    if KINDS[options.kind].pads:
        assert options.max_length is not None
        length = min(options.max_length, tokenizer.model_max_length)
    size, tokens = options.batch_size, options.batch_tokens
    how: dict[str, Any] = {"tokens": tokens}
    alike = reads_padding(model, tokenizer, rows.encoded, size, length=length, **how)
    return batches(tokenizer, rows.encoded, size, device, length, alike=alike, **how)


def _member(
    rows: Rows, kind: str, examples: np.ndarray, batch: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Return which token of a batch belongs to which row, [b, R, T]."""
    import torch

    member = membership([rows.groups[example] for example in examples], batch["attention_mask"])
    return torch.ones_like(member) if KINDS[kind].pads else member


def _attentions(
    model: PreTrainedModel, batch: Mapping[str, torch.Tensor]
) -> Sequence[torch.Tensor]:
    """Return the attention weights of every block, [b, H, t, t] each."""
    weights = getattr(model(**batch, output_attentions=True), "attentions", None) or ()
    blocks = len(blocks_of(model)) or getattr(text_config(model.config), "num_hidden_layers", 0)
    size, tokens = batch["attention_mask"].shape
    shapes = [None if one is None else tuple(one.shape) for one in weights]
    if not shapes or any(s is None or (s[0], *s[2:]) != (size, tokens, tokens) for s in shapes):
        described = "none" if not shapes or None in shapes else f"shape {shapes[0]}"
    elif blocks and len(shapes) != blocks:  # blocks of another kind, as Mamba has
        described = f"those of {len(shapes)} of {blocks} blocks"
    else:
        return weights
    raise UserError(
        f"{argument('kind', ATTENTION)}: wanted weights [batch, heads, tokens, tokens] of every "
        f"block, found {described} in a model of type {model.config.model_type!r}"
    )


def extract_to(
    folder: Path,
    source: ModelSource,
    examples: Examples,
    options: ExtractOptions,
    identity: dict[str, Any],
) -> None:
    """Run a model on all examples, and write the rows of its layers into a folder."""
    assert options.max_length is not None
    assert options.words is not None
    if load_config(source).is_encoder_decoder:
        raise UserError(
            f"model {source.name}: wanted an encoder, found an encoder-decoder; "
            f"{argument('modules')} records its encoder"
        )
    tokenizer = load_tokenizer(source)
    rows = find_rows(
        options.kind,
        tokenizer,
        examples,
        options.max_length,
        options.words,
        source.name,
        classifier_token(load_config(source)),
        options.special_tokens,
    )
    require_other_tokens(options.kind, rows, examples, source.name)
    twin = options.random_init_seed is not None
    device = place(source, options.weights, options.device, random_init=twin)
    writer = LayerWriter(folder, options.kind, rows.counts, options.dtype)
    description = f"extracting {identity['label']}"
    same = SameRows(options.kind, twin, rows)
    with TemporaryDirectory(prefix=".weights-", dir=folder) as scratch:
        model = load_encoder(
            source,
            options.random_init_seed,
            attention=options.kind == ATTENTION,
            weights=options.weights,
            device=options.device,
            scratch=Path(scratch),
        )
        for of, every in forward_layers(model, tokenizer, rows, options, description, device):
            layers_of = [layer.cpu().numpy() for layer in every]
            for number, values in enumerate(layers_of):
                same.see(number, values)
            writer.put(of, layers_of)
    same.refuse(source.name, len(rows.encoded))
    ids = [row for example in rows.ids for row in example]
    writer.finish(ids, identity, rows.row_examples)
