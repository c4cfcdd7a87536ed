"""Two models on the same texts: the states that maps are fitted on, and the states that are mapped.

Maps are fitted on tokens or on means over the tokens of a text, and applied to tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simlab.errors import UserError, argument
from simlab.experiments.injection_options import (
    ALL,
    INJECTED,
    MEAN,
    MEAN_ALL,
    MEAN_PADDED,
    WHOLE_MODEL,
    InjectOptions,
)
from simlab.models.alone import reads_padding
from simlab.models.architectures import COUNT, text_config
from simlab.models.batches import batches, pad
from simlab.models.checkpoint import Checkpoint, chosen_length
from simlab.models.evaluate import EVALUATION_BATCH
from simlab.models.fitting import load_scored, match_head
from simlab.models.load import (
    load_classifier,
    load_config,
    load_encoder,
    load_tokenizer,
)
from simlab.models.padding import encode_for_head
from simlab.models.place import AUTO, place
from simlab.models.recognise import architecture_of
from simlab.models.sources import ModelSource
from simlab.models.states import apply_head, layer_states, replaced_states
from simlab.representations.kinds import NO_ROW, membership, pool_states
from simlab.representations.words import encode_words
from simlab.store.console import progress

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from simlab.tasks import Examples, Task

Batch = dict[str, Any]


@dataclass(frozen=True)
class FitRows:
    """The rows that maps are fitted on."""

    x: torch.Tensor  # [n, p], rows of A
    y: torch.Tensor  # [n, q], the rows of B that belong to them
    # [m, q], B's states at the tokens to replace: `y`, or the tokens whose means are in `y`.
    injected: torch.Tensor
    example: np.ndarray  # int64 [n], the number of the example of each row of `x` and `y`


class PairStates:
    """Models A and B, loaded, and their states at one layer.

    Encoder `a` gives the states, and the maps imitate the states of the fine-tuned model `b`. The
    `receiver`, which continues from the mapped states, is B, or A with the classifier of B.
    """

    def __init__(
        self,
        source_a: ModelSource,
        source_b: ModelSource,
        task: Task,
        options: InjectOptions,
        device: str = AUTO,
    ) -> None:
        self.options, self.names = options, (source_a.name, source_b.name)
        self.length = chosen_length(
            [Checkpoint.open(source_b), Checkpoint.open(source_a)], options.max_length
        )
        self.layer = chosen_layer(source_a, source_b, options.layer)
        # One after the other: each is loaded before the memory for the next one is asked for.
        self.device = place(source_b, None, device, in_blocks=False)
        self.b = load_scored(source_b, task).to(self.device)  # type: ignore[arg-type]
        place(source_a, None, device, in_blocks=False)
        self.receiver = self.b
        if options.continue_with != WHOLE_MODEL:
            self.receiver = load_classifier(source_a)
            _copy_classifier(self.b, self.receiver, self.names)
            match_head(self.receiver, source_a, task)
        self.a = (
            load_encoder(source_a)
            if self.receiver is self.b
            else cast("PreTrainedModel", self.receiver.base_model)
        )
        self.tokenizers = (load_tokenizer(source_a), load_tokenizer(source_b))
        for model in (self.receiver, self.a, self.b):
            model.to(self.device).eval()  # type: ignore[arg-type]

    @property
    def widths(self) -> tuple[int, int]:
        """Return the widths of the states of A and of B."""
        return text_config(self.a.config).hidden_size, text_config(self.b.config).hidden_size

    def fit_rows(self, examples: Examples) -> FitRows:
        """Return the rows of `examples` that maps are fitted on, in the order of the examples."""
        import torch

        texts = [self._texts(tokenizer, examples) for tokenizer in self.tokenizers]
        parts: tuple[list[torch.Tensor], ...] = ([], [], [], [])
        with torch.no_grad():
            for rows, *both in self._batches(examples, "collecting states", self._whole_lengths()):
                states = [self._states(m, b) for m, b in zip((self.a, self.b), both, strict=True)]
                places = self.places(self.b, both[1])
                injected = states[1][places]
                order = torch.as_tensor(rows).repeat_interleave(len(states[1]) // len(rows))
                if self.options.fit_on == INJECTED:
                    x, y = states[0][self.places(self.a, both[0])], injected
                    order = order.to(places[0])[places[0]]
                else:
                    x, y = map(self._means, states, both, (_of(t, rows) for t in texts))
                batch = (x, y, injected, order.to(x.device))
                for part, tensor in zip(parts, batch, strict=True):
                    part.append(tensor)
        x, y, injected, order = map(torch.cat, parts)
        stored = order.argsort(stable=True)  # batches are of texts of similar length
        return FitRows(x[stored], y[stored], injected, order[stored].cpu().numpy())

    def mapped(self, examples: Examples) -> Iterator[tuple[np.ndarray, Batch, Batch, torch.Tensor]]:
        """Yield row numbers, the batches for the receiver and for B, and states of A to map."""
        description = f"injecting {self.names[0]} into {self.names[1]}"
        for rows, batch_a, batch_b in self._batches(examples, description):
            states = self._states(self.a, batch_a)[self.places(self.a, batch_a)]
            yield rows, batch_b if self.receiver is self.b else batch_a, batch_b, states

    def continuation(self, batch: Batch) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return a function of mapped states, which gives the receiver's logits with them.

        At the last layer, the layers run once, whatever the number of calls.
        """
        model, places = self.receiver, self.places(self.receiver, batch)

        def changed(own: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
            own = own.clone()
            own[places] = states.to(own.dtype)
            return own

        if self.layer == len(architecture_of(model).layers(model)):
            last = layer_states(model, batch)[-1]
            return lambda states: apply_head(model, changed(last, states), batch["attention_mask"])

        def logits(states: torch.Tensor) -> torch.Tensor:
            with replaced_states(model, self.layer, lambda own: changed(own, states)):
                return model(**batch).logits

        return logits

    def places(self, model: PreTrainedModel, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Return the index, into states [b, t, p], of the tokens that are replaced."""
        import torch

        mask = _flat(batch)["attention_mask"]
        if self.options.tokens == ALL:
            return tuple(mask.nonzero(as_tuple=True))
        index = architecture_of(model).token_index(mask)
        return torch.arange(len(mask), device=mask.device), index

    def _states(self, model: PreTrainedModel, batch: Batch) -> torch.Tensor:
        encoder = model.base_model is model
        return layer_states(model, _flat(batch) if encoder else batch)[self.layer]

    def _batches(
        self, examples: Examples, description: str, lengths: tuple[int | None, ...] = (None, None)
    ) -> Iterator[tuple[np.ndarray, Batch, Batch]]:
        """Yield row numbers, the batch for A and the batch for B.

        `lengths` are the numbers of tokens that texts of A and of B are padded to; None is the
        longest text of the batch.
        """
        encoded_a, encoded_b = (
            encode_for_head(model, tokenizer, examples, self.length)
            for model, tokenizer in zip((self.a, self.b), self.tokenizers, strict=True)
        )
        pairs_tokens = self.receiver is self.b or self.options.fit_on == INJECTED
        if self.options.tokens == ALL and pairs_tokens:
            self._require_same_tokens(examples, encoded_a, encoded_b)
        tokenizer_a, tokenizer_b = self.tokenizers
        alike = any(
            reads_padding(model, tokenizer, encoded, EVALUATION_BATCH, length=length)
            for model, tokenizer, encoded, length in (
                (self.a, tokenizer_a, encoded_a, lengths[0]),
                (self.b, tokenizer_b, encoded_b, lengths[1]),
            )
        )
        with progress(description, len(examples)) as advance:
            for rows, batch_b in batches(
                tokenizer_b,
                encoded_b,
                EVALUATION_BATCH,
                self.device,
                lengths[1],
                alike=alike,
                beside=encoded_a,
            ):
                some = [encoded_a[row] for row in rows]
                yield rows, pad(tokenizer_a, some, self.device, length=lengths[0]), batch_b
                advance(len(rows))

    def _whole_lengths(self) -> tuple[int | None, ...]:
        if self.options.fit_on != MEAN_PADDED:
            return None, None
        return tuple(min(self.length, t.model_max_length) for t in self.tokenizers)

    def _texts(
        self, tokenizer: PreTrainedTokenizerBase, examples: Examples
    ) -> list[list[np.ndarray]]:
        """Return for each choice of each example which tokens are averaged, as `membership` does.

        The lists are empty if no mean is wanted, or the mean over all positions.
        """
        if self.options.fit_on not in (MEAN, MEAN_ALL):
            return [[]] * len(examples)
        flat = examples.each_choice()
        tokens = encode_words(tokenizer, flat, self.length)[1]
        pooled = [t.in_text | (self.options.fit_on == MEAN_ALL) for t in tokens]
        for example, present in zip(flat.ids, pooled, strict=True):
            if not present.any():
                raise UserError(
                    f"{argument('fit_on', self.options.fit_on)}: wanted a token to average, found "
                    f"none in example {example}"
                )
        groups = [np.where(present, 0, NO_ROW) for present in pooled]
        choices = len(flat) // len(examples)
        return [groups[start : start + choices] for start in range(0, len(groups), choices)]

    def _means(self, states: torch.Tensor, batch: Batch, groups: list[np.ndarray]) -> torch.Tensor:
        """Return a row for each text: the mean over its tokens, or over all positions."""
        if self.options.fit_on == MEAN_PADDED:
            return states.mean(1)
        return pool_states(states, membership(groups, _flat(batch)["attention_mask"]))[:, 0]

    def _require_same_tokens(
        self, examples: Examples, encoded_a: list[Batch], encoded_b: list[Batch]
    ) -> None:
        for example, a, b in zip(examples.ids, encoded_a, encoded_b, strict=True):
            if a["input_ids"] != b["input_ids"]:
                raise UserError(
                    f"{argument('tokens', ALL)}: wanted models that split texts into the same "
                    f"tokens, found different tokens of {self.names[0]} and {self.names[1]} in "
                    f"example {example}"
                )


def chosen_layer(source_a: ModelSource, source_b: ModelSource, layer: int | None) -> int:
    """Return `layer`, or if it is None the number of layers of the model that has fewer."""
    counts = {source: _count_of_layers(source) for source in (source_a, source_b)}
    chosen = min(counts.values()) if layer is None else layer
    for source, most in counts.items():
        if not 0 <= chosen <= most:
            raise UserError(
                f"{argument('layer', chosen)}: wanted 0 to {most}, the layers of {source.name}"
            )
    return chosen


def _count_of_layers(source: ModelSource) -> int:
    config = text_config(load_config(source))
    if not isinstance(count := getattr(config, COUNT, None), int):
        raise UserError(
            f"model {source.name}: wanted a model of texts, whose configuration has {COUNT}, found "
            f"one of type {config.model_type!r} without"
        )
    return count


def _copy_classifier(
    giver: PreTrainedModel, taker: PreTrainedModel, names: tuple[str, str]
) -> None:
    """Copy the last layer of weights in the head of `giver`, and its classes, to `taker`."""
    theirs, mine = _classifier(giver).state_dict(), _classifier(taker).state_dict()
    shapes = [{name: list(w.shape) for name, w in state.items()} for state in (mine, theirs)]
    if shapes[0] != shapes[1]:
        raise UserError(
            f"{argument('continue_with', 'classifier')}: wanted classifiers of one shape, found "
            f"{shapes[0]} in {names[0]} and {shapes[1]} in {names[1]}"
        )
    _classifier(taker).load_state_dict(theirs)
    taker.config.id2label = giver.config.id2label


def _classifier(model: PreTrainedModel) -> nn.Module:
    head = architecture_of(model).head(model).values()
    parts = [part for module in head for part in module.modules()]
    return [part for part in parts if list(part.parameters(recurse=False))][-1]


def _of(texts: list[list[np.ndarray]], rows: np.ndarray) -> list[np.ndarray]:
    return [groups for row in rows for groups in texts[row]]


def _flat(batch: Batch) -> Batch:
    """Return `batch` with all choices of all examples in one axis, as an encoder takes it."""
    return {name: tensor.flatten(0, -2) for name, tensor in batch.items()}
