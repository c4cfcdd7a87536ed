"""Run a model that is larger than memory: one block after another, each on all batches.

The model's own forward runs for every block and batch. In it, block k is called with the states
that block k - 1 gave the batch, every other block passes its input on, and the embeddings of the
words are zeros once they have been read. So the arguments of a block (masks, positions) and the
head are computed by the model's own code, and only one block has weights at any time. Each weight
is read once. The states of all batches wait in memory, or in files where they do not fit
(`WaitingStates`). Where the disk has no room for them, batches go through the model in groups
(`in_groups`).

This is right only if nothing but states passes from the embeddings, or from one block, to a later
block. The first batch shows it: arguments of a block that depend on more than the batch are
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn, cast

from simlab.errors import UserError, argument, first_line
from simlab.models.architectures import text_config
from simlab.models.chain import Call, replaced, split_call
from simlab.models.recognise import architecture_of, blocks_of, without_cache
from simlab.models.shards import OFFLOAD, Shards
from simlab.models.states import between_blocks
from simlab.models.waiting import WaitingStates, room_for_states, waiting_states
from simlab.store.console import note

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import nn
    from transformers import PreTrainedModel

    from simlab.models.architectures import Architecture
    from simlab.models.sources import ModelSource

    Batch = Mapping[str, torch.Tensor]


class OffloadedModel:
    """A model whose word embeddings and blocks are read from their files when they are needed.

    Everything else (positions, norms, the head) stays in memory. `model` has no weights:
    `load_encoder` and `load_classifier` give it with `empty`.
    """

    def __init__(self, model: PreTrainedModel, source: ModelSource, device: str) -> None:
        self.model, self.source, self.device = model, source, device
        self.blocks = blocks_of(model)
        if not self.blocks:
            raise UserError(
                f"{argument('device', OFFLOAD)}: wanted a model with one list of blocks, found "
                f"none in a model of type {model.config.model_type!r}"
            )
        self._shards = Shards(model, source)
        parts = {model.get_input_embeddings(): "", **dict.fromkeys(self.blocks, "")}
        paths = {path: part for path, part in model.named_modules() if part in parts}
        self._names: dict[nn.Module | None, list[str]] = {}
        for name in model.state_dict():
            owners = [part for path, part in paths.items() if name.startswith(f"{path}.")]
            self._names.setdefault(owners[0] if owners else None, []).append(name)
        self._shards.load(self._names.get(None, []), device)
        self._shards.move(device)
        self._loaded: dict[nn.Module, None] = {}

    @property
    def embeddings(self) -> nn.Module:
        """The embeddings of the words."""
        embedding: nn.Module = self.model.get_input_embeddings()
        return embedding

    def keep(self, *parts: nn.Module) -> None:
        """Give the embeddings or blocks `parts` their weights, and free all others."""
        for part in [one for one in self._loaded if one not in parts]:
            self._shards.free(self._names[part])
            del self._loaded[part]
        for part in parts:
            if part not in self._loaded:
                self._shards.load(self._names.get(part, []), self.device)
                self._loaded[part] = None

    @contextmanager
    def without_words(self) -> Iterator[None]:
        """Let the embeddings of the words return zeros inside the block."""
        import torch

        width = cast("torch.Tensor", self.embeddings.weight).shape[1]

        def forward(ids: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
            return torch.zeros(*ids.shape, width, dtype=self.model.dtype, device=ids.device)

        with replaced([self.embeddings], forward):
            yield


@dataclass(frozen=True)
class Passed:
    """A batch after one more block."""

    layer: int  # number of blocks that the states have passed; 0 is the embedding output
    batch: int  # number of the batch
    # [b, t, p]: the input of the next block, or the output of the last block. For multiple choice,
    # b counts all choices of all examples.
    states: torch.Tensor
    output: Any  # what the model returns if the blocks that follow are left out
    # Whether the states are the output of the block that ran: nothing changes them on the way to
    # the next block.
    follows: bool = True


class BlockPasses:
    """All batches, pushed through a model block by block.

    The batches are on the model's device; in `waiting`, their states wait for their next block.
    """

    def __init__(
        self, offloaded: OffloadedModel, batches: Sequence[Batch], waiting: WaitingStates
    ) -> None:
        self.offloaded, self.batches, self.waiting = offloaded, batches, waiting
        self.model, self.blocks = offloaded.model, offloaded.blocks
        self._calls: list[Call] = []  # of all blocks, in the pass that ran last
        self._left: torch.Tensor  # the output of the block that ran last

    def run(self, **asked: Any) -> Iterator[Passed]:
        """Yield every batch after the embeddings, then every batch after block 1, and so on.

        The caller turns gradients off. `asked` are further arguments of the model, such as
        ``output_attentions``.
        """
        import torch

        self.offloaded.keep(self.offloaded.embeddings, self.blocks[0])
        architecture = architecture_of(self.model)  # runs the first block if it is unknown
        for number, batch in enumerate(self.batches):
            try:
                states, output = self._forward(architecture, batch, None, None, asked)
            except (TypeError, ValueError) as error:  # the model wants other answers of its blocks
                self._refuse("blocks that return their states", first_line(error))
            if number == 0:
                with_words = self._calls
            self.waiting.put(number, states)
            yield Passed(0, number, states, output)
        for layer, block in enumerate(self.blocks):
            self.offloaded.keep(block)
            with self.offloaded.without_words():
                if layer == 0:
                    self._forward(architecture, self.batches[0], None, None, asked)
                    self._require_same(with_words, self._calls, range(len(self.blocks)))
                    expected = self._calls
                for number, batch in enumerate(self.batches):
                    given = self.waiting.get(number)
                    states, output = self._forward(architecture, batch, layer, given, asked)
                    if number == 0:
                        self._require_same(expected, self._calls, [layer + 1])
                    self.waiting.put(number, states)
                    follows = torch.equal(states, self._left)
                    yield Passed(layer + 1, number, states, output, follows)
        self.offloaded.keep()

    def _forward(
        self,
        architecture: Architecture,
        batch: Batch,
        running: int | None,
        given: torch.Tensor | None,
        asked: Mapping[str, Any],
    ) -> tuple[torch.Tensor, Any]:
        """Run the model with block number `running` alone, on states `given`.

        Returns the input of the block that follows, or the output of the last block; and the output
        of the model.
        """
        calls: list[Call] = []
        entered: list[torch.Tensor] = []
        latest: list[torch.Tensor] = []
        following = 0 if running is None else running + 1
        own = {block: block.forward for block in self.blocks}

        def forward(*args: Any, **kwargs: Any) -> Any:
            states, call = split_call(args, kwargs)
            states = architecture.states_of(states)  # [b, t, p]
            number = len(calls)
            calls.append(call)
            if number == following:
                entered.append(states)
            if number == running:
                assert given is not None
                states = given.transpose(0, 1) if architecture.time_first else given
                answer = call(own[self.blocks[number]], states)
                latest[:] = [architecture.states_of(answer)]
                self._left = latest[0]
                return answer
            latest[:] = [states]
            return architecture.answer_with(states)

        with ExitStack() as changed:
            if (between := between_blocks(architecture, self.model)) is not None:
                change = between.forward

                def change_states(*args: Any, **kwargs: Any) -> torch.Tensor:
                    if running == 0:
                        latest[:] = [change(*args, **kwargs)]
                    return latest[0]

                changed.enter_context(replaced([between], change_states))
            changed.enter_context(replaced(self.blocks, forward))
            changed.enter_context(without_cache(self.model))
            output = self.model(**batch, **asked)
        if len(calls) != len(self.blocks):
            self._refuse(f"{len(self.blocks)} blocks that run once each", f"{len(calls)} calls")
        self._calls = calls
        return (entered or latest)[0], output

    def _require_same(
        self, expected: Sequence[Call], found: Sequence[Call], numbers: Sequence[int]
    ) -> None:
        for number in numbers:
            if number < len(found) and not _same(_rest(expected[number]), _rest(found[number])):
                self._refuse(
                    "blocks that take nothing but states from the embeddings and from each other",
                    f"another argument of block {number + 1} that depends on them",
                )

    def _refuse(self, wanted: str, found: str) -> NoReturn:
        raise UserError(
            f"{argument('device', OFFLOAD)}: wanted {wanted}, found {found} in a model of type "
            f"{self.model.config.model_type!r}"
        )


def in_groups(
    offloaded: OffloadedModel,
    batches: Sequence[Batch],
    scratch: Path,
    states: int = 1,
    max_memory: int | None = None,
) -> list[slice]:
    """Return groups of batches, in order, whose states may wait at once (`room_for_states`).

    The weights are read once for each group. Of each batch, `states` states wait at once.
    """
    room, model = room_for_states(scratch, max_memory), offloaded.model
    token = states * text_config(model.config).hidden_size * model.dtype.itemsize
    ends, size = [0], 0
    for number, batch in enumerate(batches):
        own = token * batch["input_ids"].numel()
        if number > ends[-1] and size + own > room:
            ends.append(number)
            size = 0
        size += own
    groups = [slice(*both) for both in pairwise([*ends, len(batches)])]
    if len(groups) > 1:
        note(
            f"model {offloaded.source.name}: the states of all texts have no room in memory and "
            f"on half of the free disk; its weights are read {len(groups)} times, for a part of "
            "the texts each"
        )
    return groups


def states_by_batch(
    offloaded: OffloadedModel,
    batches: Sequence[Batch],
    scratch: Path,
    max_memory: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[list[torch.Tensor]]:
    """Yield the states of all layers of each batch, as `states.layer_states` gives them.

    States that do not fit into `max_memory` bytes, by default a quarter of the free memory, wait in
    folder `scratch`. `advance` is called with the number of texts that have passed one more block.
    """
    layers = len(offloaded.blocks) + 1
    for group in in_groups(offloaded, batches, scratch, layers + 1, max_memory):
        part = batches[group]
        with (
            waiting_states(scratch, max_memory) as waiting,
            waiting_states(scratch, max_memory) as stored,
        ):
            for passed in BlockPasses(offloaded, part, waiting).run():
                stored.put(passed.batch * layers + passed.layer, passed.states)
                advance(len(passed.states))
            for number in range(len(part)):
                yield [stored.get(number * layers + layer) for layer in range(layers)]


def _rest(call: Call) -> list[Any]:
    return [call.args, call.kwargs]


def _same(x: Any, y: Any) -> bool:
    """Return whether two arguments of a block have the same tensors, wherever they hold them."""
    import torch

    if isinstance(x, torch.Tensor):
        return (
            isinstance(y, torch.Tensor)
            and x.shape == y.shape
            and torch.equal(x.nan_to_num(), y.nan_to_num())
        )
    if isinstance(x, Mapping):
        return x.keys() == y.keys() and all(_same(x[name], y[name]) for name in x)
    if isinstance(x, list | tuple):
        return len(x) == len(y) and all(map(_same, x, y))
    return type(x) is type(y)
