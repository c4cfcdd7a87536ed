"""Run a model over examples, and write the rows of its layers: in one pass, or block by block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.models.alone import reads_padding
from simlab.models.architectures import text_config
from simlab.models.batches import Halving, batches
from simlab.models.hidden import HiddenStates
from simlab.models.load import load_config, load_encoder, load_tokenizer
from simlab.models.offload import BlockPasses, OffloadedModel, Passed, in_groups
from simlab.models.place import place
from simlab.models.recognise import blocks_of, classifier_token
from simlab.models.shards import OFFLOAD
from simlab.models.sources import ModelSource
from simlab.models.spread import is_spread, spread_folder
from simlab.models.waiting import waiting_states
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

    Fed = list[tuple[np.ndarray, dict[str, Any]]]


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

    if not is_spread(model):
        model.to(device).eval()  # type: ignore[arg-type]
    states_of, halving = HiddenStates(model), Halving()

    def pool(examples: np.ndarray, batch: dict[str, Any]) -> list[torch.Tensor]:
        member = _member(rows, options.kind, examples, batch)
        if options.kind == ATTENTION:
            return [pool_attention(layer, member) for layer in _attentions(model, batch)]
        return list(states_of(batch, partial(pool_states, member=member)))

    with torch.inference_mode(), progress(description, len(rows.encoded)) as advance:
        for examples, batch in _batches(model, tokenizer, rows, options, device):
            for part, pooled in halving.run(pool, examples, batch):
                yield part, pooled
                advance(len(part))


def forward_blocks(
    offloaded: OffloadedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Rows,
    options: ExtractOptions,
    description: str,
    scratch: Path,
) -> Iterator[tuple[int, np.ndarray, torch.Tensor]]:
    """Run every example through one block after another, and yield the rows of each layer.

    A batch is the number of the layer from 0 on, the numbers of the batch's examples, and the rows
    of the layer, equal to those of `forward_layers` bit by bit. States that do not fit into memory
    are written to folder `scratch`.
    """
    import torch

    model, blocks = offloaded.model, len(offloaded.blocks)
    attention = options.kind == ATTENTION
    every = list(_batches(offloaded, tokenizer, rows, options, offloaded.device))
    groups = in_groups(offloaded, [batch for _, batch in every], scratch)
    passes = f"{description}, block by block"
    asked = {"output_attentions" if attention else "output_hidden_states": True}
    with (
        torch.inference_mode(),
        progress(passes, (blocks + 1) * len(rows.encoded)) as advance,
    ):
        for fed, passed in _passed(offloaded, every, groups, scratch, asked):
            examples, batch = fed[passed.batch]
            member = _member(rows, options.kind, examples, batch)
            if not attention:
                states = _states(passed, blocks)[:, : member.shape[-1]]
                yield passed.layer, examples, pool_states(states, member)
            elif passed.layer:
                weights = _attention_of_block(model, passed, batch)
                yield passed.layer - 1, examples, pool_attention(weights, member)
            advance(len(examples))


def _passed(
    offloaded: OffloadedModel,
    every: Fed,
    groups: Sequence[slice],
    scratch: Path,
    asked: Mapping[str, Any],
) -> Iterator[tuple[Fed, Passed]]:
    """Yield every pass of a block, and the group of batches that its number counts in."""
    for group in groups:
        fed = every[group]
        with waiting_states(scratch) as waiting:
            for passed in BlockPasses(offloaded, [batch for _, batch in fed], waiting).run(**asked):
                yield fed, passed


def _batches(
    model: PreTrainedModel | OffloadedModel,
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


def _states(passed: Passed, blocks: int) -> torch.Tensor:
    """Return the hidden states of a layer; the last layer's are the output of the model."""
    if passed.layer < blocks:
        return passed.states
    states: torch.Tensor = passed.output.hidden_states[-1]
    return states


def _attention_of_block(
    model: PreTrainedModel, passed: Passed, batch: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Return the attention weights [b, H, t, t] of the block that ran.

    The model gives an entry for every block, or for the blocks that ran alone.
    """
    attentions = getattr(passed.output, "attentions", None) or ()
    own = attentions[passed.layer - 1 : passed.layer] if len(attentions) > 1 else attentions
    _require_attentions(model, own, batch, 1)
    return own[0]


def _attentions(
    model: PreTrainedModel, batch: Mapping[str, torch.Tensor]
) -> Sequence[torch.Tensor]:
    """Return the attention weights of every block, [b, H, t, t] each."""
    weights = getattr(model(**batch, output_attentions=True), "attentions", None) or ()
    blocks = len(blocks_of(model)) or getattr(text_config(model.config), "num_hidden_layers", 0)
    _require_attentions(model, weights, batch, blocks)
    return weights


def _require_attentions(
    model: PreTrainedModel,
    weights: Sequence[torch.Tensor | None],
    batch: Mapping[str, torch.Tensor],
    blocks: int,
) -> None:
    """Raise UserError unless each of `blocks` blocks (0: any number) gave weights [b, H, t, t]."""
    size, tokens = batch["attention_mask"].shape
    shapes = [None if one is None else tuple(one.shape) for one in weights]
    if not shapes or any(s is None or (s[0], *s[2:]) != (size, tokens, tokens) for s in shapes):
        described = "none" if not shapes or None in shapes else f"shape {shapes[0]}"
    elif blocks and len(shapes) != blocks:  # blocks of another kind, as Mamba has
        described = f"those of {len(shapes)} of {blocks} blocks"
    else:
        return
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
    with spread_folder(options.device, folder) as spread:
        _extract(folder, source, examples, options, identity, spread)


def _extract(
    folder: Path,
    source: ModelSource,
    examples: Examples,
    options: ExtractOptions,
    identity: dict[str, Any],
    spread: Path | None,
) -> None:
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
    model = load_encoder(
        source,
        options.random_init_seed,
        attention=options.kind == ATTENTION,
        weights=options.weights,
        empty=options.device == OFFLOAD,
        spread=spread,
    )
    writer = LayerWriter(folder, options.kind, rows.counts, options.dtype)
    description = f"extracting {identity['label']}"
    same = SameRows(options.kind, twin, rows)
    if options.device == OFFLOAD:
        offloaded = OffloadedModel(model, source, device)
        fed = forward_blocks(offloaded, tokenizer, rows, options, description, folder)
        _write_by_layer(fed, offloaded, options.kind, writer, same)
    else:
        for of, every in forward_layers(model, tokenizer, rows, options, description, device):
            layers_of = [layer.cpu().numpy() for layer in every]
            for number, values in enumerate(layers_of):
                same.see(number, values)
            writer.put(of, layers_of)
    same.refuse(source.name, len(rows.encoded))
    ids = [row for example in rows.ids for row in example]
    writer.finish(ids, identity, rows.row_examples)


def _write_by_layer(
    fed: Iterator[tuple[int, np.ndarray, torch.Tensor]],
    offloaded: OffloadedModel,
    kind: str,
    writer: LayerWriter,
    same: SameRows,
) -> None:
    """Write the rows of one layer after another; all layers have the width of the first."""
    for layer, of, pooled in fed:
        values = pooled.cpu().numpy()
        width = values.shape[1 if kind == ATTENTION else -1]
        if not writer.sizes:
            writer.create([width] * (len(offloaded.blocks) + (kind != ATTENTION)))
        if width != writer.sizes[layer]:
            raise UserError(
                f"{argument('device', OFFLOAD)}: wanted layers of one width, found "
                f"{writer.sizes[layer]} and {width} in model {offloaded.source.name}"
            )
        same.see(layer, values)
        writer.put_layer(layer, of, values)
