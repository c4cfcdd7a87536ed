"""Read every layer of a classifier on all examples: in one pass, or block by block."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError, argument
from simlab.models.alone import reads_padding
from simlab.models.batches import batches
from simlab.models.evaluate import EVALUATION_BATCH
from simlab.models.fitting import load_scored
from simlab.models.load import load_classifier, load_tokenizer
from simlab.models.offload import BlockPasses, OffloadedModel, in_groups
from simlab.models.padding import encode_for_head
from simlab.models.place import AUTO, place
from simlab.models.shards import OFFLOAD
from simlab.models.sources import ModelSource
from simlab.models.states import layer_states
from simlab.models.waiting import waiting_states
from simlab.store.console import progress

if TYPE_CHECKING:
    import numpy as np
    import torch

    from simlab.tasks import Examples, Task

    # Of states [b, t, p] of a layer, their mask [b, t] and whether the layer is the last: [b, ...].
    OfLayer = Callable[[torch.Tensor, torch.Tensor, bool], torch.Tensor]


class LayerReader:
    """A classifier whose layers are read.

    With `new_head`, a new head is drawn (`seed` and `head` are as for `load_classifier`) in place
    of the model's own. The weights of the blocks are not in `model` if it runs block by block.
    """

    def __init__(
        self,
        source: ModelSource,
        task: Task,
        max_length: int,
        *,
        new_head: bool = False,
        seed: int = 0,
        head: str | None = None,
        device: str = AUTO,
        scratch: Path | None = None,
        in_blocks: bool = True,
    ) -> None:
        self.max_length, self.scratch = max_length, scratch
        self.device = place(source, None, device, in_blocks=in_blocks)
        by_block = device == OFFLOAD
        self.model = (
            load_classifier(source, task, seed=seed, head=head, empty=by_block)
            if new_head
            else load_scored(source, task, empty=by_block)
        )
        self.tokenizer = load_tokenizer(source)
        self.offloaded = OffloadedModel(self.model, source, self.device) if by_block else None
        if self.offloaded is None:
            self.model.to(self.device)  # type: ignore[arg-type]

    def gather(
        self, function: OfLayer, description: str, *examples: Examples
    ) -> list[torch.Tensor]:
        """Gather ``function(states, mask, is_last)`` of every layer and example.

        Each set of examples gives [layers + 1, n, ...] float32. The weights of a model that runs
        block by block are read once for all sets.
        """
        import torch

        fed = [
            (number, rows, batch)
            for number, one in enumerate(examples)
            for rows, batch in self._batches(one)
        ]
        passed = [batch for *_, batch in fed]
        counts = [len(one) for one in examples]
        gathered: dict[int, torch.Tensor] = {}
        passes = len(fed) * (1 if self.offloaded is None else len(self.offloaded.blocks) + 1)
        with torch.no_grad(), progress(description, passes) as advance:
            for layer, layers, place_of, states in self._states(passed):
                number, rows, batch = fed[place_of]
                values = function(states, batch["attention_mask"], layer == layers - 1)
                values = values.float().cpu()
                if number not in gathered:
                    shape = (layers, counts[number], *values.shape[1:])
                    _require_memory(4 * math.prod(shape))
                    gathered[number] = torch.empty(shape)
                gathered[number][layer, torch.as_tensor(rows)] = values
                if self.offloaded is not None or layer == layers - 1:
                    advance(1)
        return [gathered[number] for number in range(len(examples))]

    def _batches(self, examples: Examples) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
        encoded = encode_for_head(self.model, self.tokenizer, examples, self.max_length)
        reads, size = self.offloaded or self.model, EVALUATION_BATCH
        alike = reads_padding(reads, self.tokenizer, encoded, size)
        return batches(self.tokenizer, encoded, size, self.device, alike=alike)

    @contextmanager
    def head_alone(self) -> Iterator[None]:
        """Let the head run inside the block, also where the word embeddings are in their file."""
        if self.offloaded is None:
            yield
            return
        with self.offloaded.without_words():
            yield

    def _states(
        self, fed: list[dict[str, torch.Tensor]]
    ) -> Iterator[tuple[int, int, int, torch.Tensor]]:
        """Yield number of the layer, number of layers, number of the batch, and states."""
        if self.offloaded is None:
            for number, batch in enumerate(fed):
                states = layer_states(self.model, batch)
                for layer, one in enumerate(states):
                    yield layer, len(states), number, one
            return
        layers, scratch = len(self.offloaded.blocks) + 1, self.scratch or Path(gettempdir())
        for group in in_groups(self.offloaded, fed, scratch):
            with waiting_states(scratch) as waiting:
                for passed in BlockPasses(self.offloaded, fed[group], waiting).run():
                    yield passed.layer, layers, group.start + passed.batch, passed.states


def _require_memory(wanted: int) -> None:
    from simcore import free_memory

    free = free_memory()
    if wanted > free:
        raise UserError(
            f"{argument('train_size')}: wanted examples whose vectors fit into memory, found "
            f"{wanted:,} bytes of vectors and {free:,} bytes free"
        )
