"""A pair of models for injection: the states of both, the maps between them, and the predictions.

Maps are fitted on tokens or on means over the tokens of a text, and applied to tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simlab.errors import UserError, argument
from simlab.experiments.options import (
    ALL,
    INJECTED,
    MEAN_ALL,
    SAME_WIDTH,
    SETTINGS,
    TABLE_5,
    InjectOptions,
    best_setting,
    third_split,
)
from simlab.models import load
from simlab.models.architectures import COUNT, text_config
from simlab.models.batches import batches, pad, reads_padding
from simlab.models.checkpoint import Checkpoint, chosen_length
from simlab.models.classes import head_of
from simlab.models.evaluate import EVALUATION_BATCH, metric_columns, predict_logits, predictions_of
from simlab.models.place import AUTO, place
from simlab.models.recognise import architecture_of
from simlab.models.sources import ModelSource
from simlab.models.states import apply_head, layer_states, replaced_states
from simlab.models.tokens import encode_for_head
from simlab.representations.kinds import NO_ROW, encode_words, membership, pool_states
from simlab.results.results import (
    CHOSEN,
    FITTED,
    INJECTION,
    ITSELF,
    LEARNT,
    RANDOM_CLASSIFIER,
    RANDOM_EMBEDDINGS,
    RANDOM_LABELS,
    ResultRow,
    Side,
)
from simlab.store.console import err, progress, warnings_as_notes
from simlab.store.files import hash_json
from simlab.tasks.task import score

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from simcore.align import Aligner
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


class InjectionPair:
    """Encoder `a`, which gives states, and fine-tuned model `b`, which continues from them."""

    def __init__(
        self,
        source_a: ModelSource,
        source_b: ModelSource,
        task: Task,
        options: InjectOptions,
        original: ModelSource | None = None,
        device: str = AUTO,
    ) -> None:
        self.task, self.options, self.original = task, options, original
        self.sources = (source_a, source_b)
        checkpoints = [Checkpoint.open(source_b), Checkpoint.open(source_a)]
        self.length = chosen_length(checkpoints, options.max_length)
        self.layer = chosen_layer(source_a, source_b, options.layer)
        # One after the other: each is loaded before the memory for the next one is asked for.
        self.device = place(source_b, None, device, in_blocks=False)
        self.b = load.load_scored(source_b, task)
        place(source_a, None, device, in_blocks=False)
        self.a = load.load_encoder(source_a)
        for model in (self.a, self.b):
            model.to(self.device).eval()  # type: ignore[arg-type]
        self.tokenizers = (load.load_tokenizer(source_a), load.load_tokenizer(source_b))
        widths = [text_config(model.config).hidden_size for model in (self.a, self.b)]
        left_out = set(SAME_WIDTH) if widths[0] != widths[1] else set()
        for method in left_out.intersection(options.methods or ()):
            raise UserError(
                f"{argument('methods', method)}: wanted models of one width, found {widths[0]} and "
                f"{widths[1]}"
            )
        left_out |= {RANDOM_CLASSIFIER} if original is None else set()
        self.methods = options.methods or tuple(name for name in TABLE_5 if name not in left_out)
        # For each method without a value, the reason; filled when the maps are fitted.
        self.undefined: dict[str, str] = {}
        # For each method, the setting that the search chose.
        self.chosen: dict[str, dict[str, Any]] = {}

    def rows(self, a: Side, b: Side) -> list[ResultRow]:
        """Return the rows of the results table, with every metric of every method."""
        task, rows = self.task, []
        labels, questions = task.heldout.labels, task.heldout.questions
        predicted = self._predictions(*self._fit())
        for method in self.methods:
            options = {"method": method, **self.options.protocol(method)}
            options |= {CHOSEN: self.chosen[method]} if method in self.chosen else {}
            options |= {"undefined": self.undefined[method]} if method in self.undefined else {}
            for metric in task.all_metrics:
                columns: dict[str, Any] = {"measure": metric, "value": float("nan")}
                if method in predicted:
                    value = score(metric, labels, predicted[method], questions)
                    columns = metric_columns(metric, value, predicted[method], labels, questions)
                row = ResultRow(
                    experiment=INJECTION,
                    kind=self.options.tokens,
                    options=json.dumps(options),
                    **a.columns("x"),
                    **b.columns("y"),
                    layer_x=self.layer,
                    layer_y=self.layer,
                    n=len(task.heldout),
                    task=task.name,
                    **columns,
                )
                rows.append(row)
        return rows

    @cached_property
    def draw_seed(self) -> int:
        """Return the seed of random heads, states and labels, which is another for every pair."""
        models = [source.fingerprint for source in self.sources]
        return int(hash_json([self.options.seed, *models])[:8], 16)

    def fit_rows(self, examples: Examples) -> FitRows:
        """Return the rows of `examples` that maps are fitted on, in the order of the examples."""
        import torch

        texts = [self._pooled_tokens(tokenizer, examples) for tokenizer in self.tokenizers]
        parts: tuple[list[torch.Tensor], ...] = ([], [], [], [])
        with torch.no_grad():
            for rows, *both in self._batches(examples, "collecting states"):
                states = [self._states(m, b) for m, b in zip((self.a, self.b), both, strict=True)]
                places = self.places(self.b, both[1])
                injected = states[1][places]
                order = torch.as_tensor(rows).repeat_interleave(len(states[1]) // len(rows))
                if self.options.fit_on == INJECTED:
                    x, y = states[0][self.places(self.a, both[0])], injected
                    order = order.to(places[0])[places[0]]
                else:
                    x, y = (
                        # A row for each text: the mean over its tokens.
                        pool_states(
                            of_model,
                            membership(
                                [group for row in rows for group in groups[row]],
                                _flat(batch)["attention_mask"],
                            ),
                        )[:, 0]
                        for of_model, batch, groups in zip(states, both, texts, strict=True)
                    )
                for part, tensor in zip(parts, (x, y, injected, order.to(x.device)), strict=True):
                    part.append(tensor)
        x, y, injected, order = map(torch.cat, parts)
        stored = order.argsort(stable=True)  # batches are of texts of similar length
        return FitRows(x[stored], y[stored], injected, order[stored].cpu().numpy())

    def mapped(self, examples: Examples) -> Iterator[tuple[np.ndarray, Batch, torch.Tensor]]:
        """Yield row numbers, the batches for B, and the states of A to map."""
        names = [source.name for source in self.sources]
        for rows, batch_a, batch_b in self._batches(examples, f"injecting {' into '.join(names)}"):
            yield rows, batch_b, self._states(self.a, batch_a)[self.places(self.a, batch_a)]

    def continuation(self, batch: Batch) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return a function of mapped states, which gives B's logits with them.

        At the last layer, the layers run once, whatever the number of calls.
        """
        places = self.places(self.b, batch)

        def changed(original: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
            original = original.clone()
            original[places] = states.to(original.dtype)
            return original

        if self.layer == len(architecture_of(self.b).layers(self.b)):
            last, mask = layer_states(self.b, batch)[-1], batch["attention_mask"]
            return lambda states: apply_head(self.b, changed(last, states), mask)

        def logits(states: torch.Tensor) -> torch.Tensor:
            with replaced_states(self.b, self.layer, lambda original: changed(original, states)):
                return self.b(**batch).logits

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
        return layer_states(model, _flat(batch) if model is self.a else batch)[self.layer]

    def _batches(
        self, examples: Examples, description: str
    ) -> Iterator[tuple[np.ndarray, Batch, Batch]]:
        """Yield row numbers, the batch for A and the batch for B."""
        models = list(zip((self.a, self.b), self.tokenizers, strict=True))
        encoded_a, encoded_b = (
            encode_for_head(model, tokenizer, examples, self.length) for model, tokenizer in models
        )
        if self.options.tokens == ALL:
            for example, a, b in zip(examples.ids, encoded_a, encoded_b, strict=True):
                if a["input_ids"] != b["input_ids"]:
                    names = " and ".join(source.name for source in self.sources)
                    raise UserError(
                        f"{argument('tokens', ALL)}: wanted models that split texts into the same "
                        f"tokens, found different tokens of {names} in example {example}"
                    )
        alike = any(
            reads_padding(model, tokenizer, encoded, EVALUATION_BATCH)
            for (model, tokenizer), encoded in zip(models, (encoded_a, encoded_b), strict=True)
        )
        how: dict[str, Any] = {"alike": alike, "beside": encoded_a}
        fed = batches(self.tokenizers[1], encoded_b, EVALUATION_BATCH, self.device, **how)
        with progress(description, len(examples)) as advance:
            for rows, batch_b in fed:
                beside = [encoded_a[row] for row in rows]
                yield rows, pad(self.tokenizers[0], beside, self.device), batch_b
                advance(len(rows))

    def _pooled_tokens(self, tokenizer: Any, examples: Examples) -> list[list[np.ndarray]]:
        """Return for each choice of each example which tokens are averaged, as `membership` does.

        The lists are empty if no mean is wanted.
        """
        if self.options.fit_on == INJECTED:
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

    def _fit(self) -> tuple[dict[str, Aligner], tuple[torch.Tensor, torch.Tensor]]:
        """Return the fitted maps by method, and mean and spread of B's states in training rows."""
        import torch

        fitted = [name for name in self.methods if name in FITTED]
        if not fitted and RANDOM_EMBEDDINGS not in self.methods:
            return {}, (torch.empty(0), torch.empty(0))
        size = min(self.options.fit_size, len(self.task.train))
        rows = self.fit_rows(self.task.train.head(size))
        aligners = {name: map_ for name in fitted if (map_ := self._fitted(name, rows)) is not None}
        return aligners, (rows.injected.mean(0), rows.injected.std(0))

    def _fitted(self, method: str, rows: FitRows) -> Aligner | None:
        """Return the fitted map from A to B; if it is undefined, note why and return None."""
        from simcore.align import ConstantRowsError, TooFewRowsError

        try:
            with warnings_as_notes():
                if self.options.tune is not None:
                    self.chosen[method] = self._tuned(method, rows)
                return self._aligner(method, self.chosen.get(method, {})).fit(rows.x, rows.y)
        except ConstantRowsError as error:
            self.undefined[method] = f"{error} (X: states of A, Y: states of B)"
            return None
        except ValueError as error:
            sizes = {"fit_size": self.options.fit_size, "train_size": len(self.task.train)}
            option, size = min(sizes.items(), key=lambda limit: limit[1])
            if isinstance(error, TooFewRowsError) and self.options.methods is None:
                self.undefined[method] = f"{option} {size}: {error}"
                return None
            where = f"{argument(option, size)}, {argument('methods', method)}"
            raise UserError(f"{where}: {error}") from error

    def _tuned(self, method: str, rows: FitRows) -> dict[str, Any]:
        """Return the setting with the least error on rows of the fit that it was not fitted on."""
        fit, validation = third_split(rows.example, self.options.seed)

        def errors(setting: dict[str, Any]) -> list[float]:
            aligner = self._aligner(method, setting).fit(rows.x[fit], rows.y[fit])
            return [aligner.errors(rows.x[validation], rows.y[validation]).relative]

        return best_setting(SETTINGS[method][: self.options.tune], errors)

    def _aligner(self, method: str, setting: dict[str, Any]) -> Aligner:
        from simcore.align import METHODS as ALIGNERS

        params = self.options.params(method, setting)
        if method in LEARNT:
            params["progress"] = err.is_terminal
        return ALIGNERS[method](**params)

    def _predictions(
        self, aligners: dict[str, Aligner], spread: tuple[torch.Tensor, torch.Tensor]
    ) -> dict[str, np.ndarray]:
        import torch

        task, heldout = self.task, self.task.heldout
        stateless = (RANDOM_LABELS, RANDOM_CLASSIFIER, *self.undefined)
        run = [name for name in self.methods if name not in stateless]
        shape = (len(heldout), cast(int, self.b.config.num_labels))
        logits = {name: np.empty(shape, np.float32) for name in run}
        noise = torch.Generator().manual_seed(self.draw_seed)
        with torch.no_grad():
            for rows, batch, original in self.mapped(heldout):
                continued = self.continuation(batch)
                for method in run:
                    if method == ITSELF:
                        batch_logits = self.b(**batch).logits
                    elif method == RANDOM_EMBEDDINGS:
                        drawn = torch.randn(len(original), len(spread[0]), generator=noise)
                        batch_logits = continued(spread[0] + spread[1] * drawn.to(original.device))
                    elif method in aligners:
                        mapped = aligners[method].transform(original)
                        batch_logits = continued(cast("torch.Tensor", mapped))
                    else:
                        batch_logits = continued(original)
                    logits[method][rows] = batch_logits.cpu().numpy()
        if RANDOM_CLASSIFIER in self.methods:
            logits[RANDOM_CLASSIFIER] = self._fresh_logits()
        predictions = {name: predictions_of(values, task) for name, values in logits.items()}
        draw = np.random.default_rng(self.draw_seed)
        predictions[RANDOM_LABELS] = draw.choice(task.train.labels, len(heldout))
        return predictions

    def _fresh_logits(self) -> np.ndarray:
        """Return the held-out logits of the model before fine-tuning with a head drawn anew."""
        assert self.original is not None  # else the method is left out
        head = head_of(self.b.config)
        model = load.load_classifier(self.original, self.task, seed=self.draw_seed, head=head)
        model.to(self.device)  # type: ignore[arg-type]
        tokenizer, title = load.load_tokenizer(self.original), RANDOM_CLASSIFIER
        return predict_logits(model, tokenizer, self.task.heldout, self.length, title)


def chosen_layer(source_a: ModelSource, source_b: ModelSource, layer: int | None) -> int:
    """Return `layer`, or if it is None the number of layers of the model that has fewer."""
    counts: dict[ModelSource, int] = {}
    for source in (source_a, source_b):
        config = text_config(load.load_config(source))
        if not isinstance(count := getattr(config, COUNT, None), int):
            raise UserError(
                f"model {source.name}: wanted a model of texts, whose configuration has {COUNT}, "
                f"found one of type {config.model_type!r} without"
            )
        counts[source] = count
    chosen = min(counts.values()) if layer is None else layer
    for source, most in counts.items():
        if not 0 <= chosen <= most:
            raise UserError(
                f"{argument('layer', chosen)}: wanted 0 to {most}, the layers of {source.name}"
            )
    return chosen


def _flat(batch: Batch) -> Batch:
    """Return `batch` with all choices of all examples in one axis, as an encoder takes it."""
    return {name: tensor.flatten(0, -2) for name, tensor in batch.items()}
