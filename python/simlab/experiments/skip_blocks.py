"""Leave out every span of layers of a model that runs block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simlab.experiments.spans import EMPTY, Span, ended, in_parts
from simlab.models.chain import LayerCalls, changed_between
from simlab.models.offload import BlockPasses, OffloadedModel, in_groups
from simlab.models.waiting import waiting_states

if TYPE_CHECKING:
    import torch

    # Numbers of examples, their batch, and the most states of the batch in one call of a layer.
    Part = tuple[np.ndarray, dict[str, torch.Tensor], int]


def skip_blocks(
    offloaded: OffloadedModel,
    parts: Sequence[Part],
    scratch: Path,
    max_memory: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[dict[Span, torch.Tensor]]:
    """Yield the logits without each span of every part, as `skip.skip_logits` gives them.

    States that do not fit into `max_memory` bytes, by default half of the free memory, wait in
    folder `scratch`. `advance` is called with the number of examples that have passed one more
    block.
    """
    layers = len(offloaded.blocks)
    states = 1 + (layers + 1) * (layers + 2) // 2
    half = None if max_memory is None else max_memory // 2
    batches = [batch for _, batch, _ in parts]
    for group in in_groups(offloaded, batches, scratch, states, half):
        yield from _skip_in(offloaded, parts[group], scratch, half, advance)


def _skip_in(
    offloaded: OffloadedModel,
    parts: Sequence[Part],
    scratch: Path,
    room: int | None,
    advance: Callable[[int], None],
) -> list[dict[Span, torch.Tensor]]:
    layers, name = len(offloaded.blocks), offloaded.source.name
    # States wait under the span that they lack; the whole model's after layer i as (i, i).
    slots = {(i, j): i * (layers + 1) + j for j in range(layers + 1) for i in range(j + 1)}
    logits: list[dict[Span, torch.Tensor]] = [{} for _ in parts]
    with waiting_states(scratch, room) as passing, waiting_states(scratch, room) as waiting:
        for passed in BlockPasses(offloaded, [batch for _, batch, _ in parts], passing).run():
            if not passed.follows:
                raise changed_between(name, passed.layer)
            rows, batch, states_per_call = parts[passed.batch]
            first, end = passed.batch * (layers + 1) ** 2, passed.layer
            waiting.put(first + slots[end, end], passed.states)
            calls = LayerCalls(offloaded.model, batch, name)

            def before(layer: int, part: list[Span], first: int = first) -> list[torch.Tensor]:
                """Return the states that the model without each span gives layer `layer`."""
                return [waiting.get(first + slots[i, i if j == layer else j]) for i, j in part]

            for part in in_parts(ended(end - 1), states_per_call):
                states = calls.run(end - 1, before(end - 1, part))
                for span, of_span in zip(part, states, strict=True):
                    waiting.put(first + slots[span], of_span)
            if end == layers:
                of_batch = logits[passed.batch]
                of_batch[EMPTY] = passed.output.logits
                for part in in_parts(ended(layers), states_per_call):
                    of_batch.update(zip(part, calls.finish(before(layers, part)), strict=True))
            advance(len(rows))
    return logits
