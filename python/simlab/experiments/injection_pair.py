"""A pair of models for injection: maps fitted on states of both, and the predictions with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError
from simlab.experiments.injection_options import ALL, SAME_WIDTH, TABLE_5, InjectOptions
from simlab.experiments.options import map_params
from simlab.models.batches import batches, encode, pad
from simlab.models.evaluate import EVALUATION_BATCH, predictions_of
from simlab.models.load import load_classifier, load_encoder, load_tokenizer, require_head
from simlab.models.recognise import architecture_of
from simlab.models.sources import ModelSource
from simlab.models.states import layer_states, replaced_states
from simlab.store.console import err, progress, warnings_as_notes
from simlab.store.results import (
    FITTED,
    INJECTION,
    ITSELF,
    RANDOM_EMBEDDINGS,
    RANDOM_LABELS,
    ResultRow,
)
from simlab.store.runtime import best_device
from simlab.tasks.trained_lengths import chosen_length

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from simcore.align import Aligner
    from simlab.tasks import Examples, Task


class InjectionPair:
    """Models A and B, loaded, for injections of states of A into B.

    Attributes
    ----------
    a
        The encoder that gives the states.
    b
        The fine-tuned model that continues from the states.
    layer : int
        Number of the layer.
    length : int
        Tokens kept per example.
    undefined : dict of str
        For each method without a value, the reason; filled when the maps are fitted.
    """

    def __init__(
        self, source_a: ModelSource, source_b: ModelSource, task: Task, options: InjectOptions
    ) -> None:
        self.length = chosen_length([source_b.path, source_a.path], options.max_length)
        self.task, self.options, self.names = task, options, (source_a.name, source_b.name)
        self.b = load_classifier(source_b)
        require_head(self.b, source_b, task)
        self.a = load_encoder(source_a)
        self.tokenizers = (load_tokenizer(source_a), load_tokenizer(source_b))
        self.device = best_device()
        for model in (self.a, self.b):
            model.to(self.device).eval()
        self.layer = self._chosen_layer()
        self.methods = self._chosen_methods()
        self.undefined: dict[str, str] = {}

    def rows(self, label_a: str, label_b: str) -> list[ResultRow]:
        """Return the rows of the results table, with every metric of every method."""
        task = self.task
        aligners, spread = self._fit()
        labels = task.heldout.labels
        values = {
            method: task.scores(predictions, labels)
            for method, predictions in self._predictions(aligners, spread).items()
        }
        return [
            ResultRow(
                comparison=INJECTION,
                measure=metric,
                kind=self.options.tokens,
                options=self._options(method),
                model_x=label_a,
                model_y=label_b,
                layer_x=self.layer,
                layer_y=self.layer,
                value=values[method][metric] if method in values else float("nan"),
                n=len(task.heldout),
                task=task.name,
            )
            for method in self.methods
            for metric in task.all_metrics
        ]

    def _options(self, method: str) -> str:
        reason = {"undefined": self.undefined[method]} if method in self.undefined else {}
        return json.dumps({"method": method, **reason})

    def _chosen_layer(self) -> int:
        counts = [len(architecture_of(model).layers(model)) for model in (self.a, self.b)]
        layer = min(counts) if self.options.layer is None else self.options.layer
        for name, most in zip(self.names, counts, strict=True):
            if not 0 <= layer <= most:
                raise UserError(f"--layer {layer}: wanted 0 to {most}, the layers of {name}")
        return layer

    def _chosen_methods(self) -> tuple[str, ...]:
        wanted = self.options.methods
        widths = [model.config.hidden_size for model in (self.a, self.b)]
        if widths[0] == widths[1]:
            return wanted or TABLE_5
        for method in set(wanted or ()).intersection(SAME_WIDTH):
            raise UserError(
                f"--method {method}: wanted models of one width, found {widths[0]} and {widths[1]}"
            )
        return wanted or tuple(name for name in TABLE_5 if name not in SAME_WIDTH)

    def _fit(self) -> tuple[dict[str, Aligner], tuple[torch.Tensor, torch.Tensor]]:
        """Return the fitted maps by method, and mean and spread of B's states in training rows."""
        import torch

        fitted = [name for name in self.methods if name in FITTED]
        x, y = [], []
        if fitted or RANDOM_EMBEDDINGS in self.methods:
            examples = self.task.train.head(self._limit()[1])
            with torch.no_grad():
                for _, _, batch_b, own in self._batches(examples, "collecting states"):
                    states = layer_states(self.b, batch_b)[self.layer]
                    x.append(own)
                    y.append(self._picked(self.b, states, batch_b))
        if not x:
            return {}, (torch.empty(0), torch.empty(0))
        side_x, side_y = torch.cat(x), torch.cat(y)
        aligners = {name: self._fitted(name, side_x, side_y) for name in fitted}
        found = {name: aligner for name, aligner in aligners.items() if aligner is not None}
        return found, (side_y.mean(0), side_y.std(0))

    def _fitted(self, method: str, x: torch.Tensor, y: torch.Tensor) -> Aligner | None:
        """Return the fitted map from `x` to `y`; if it is undefined, note why and return None."""
        from simcore.align import METHODS as ALIGNERS
        from simcore.align import ConstantRowsError, TooFewRowsError

        params = map_params(method, seed=self.options.seed, epochs=self.options.epochs)
        if params:
            params["progress"] = err.is_terminal
        try:
            with warnings_as_notes():
                return ALIGNERS[method](**params).fit(x, y)
        except ConstantRowsError as error:
            self.undefined[method] = f"{error} (X: states of A, Y: states of B)"
            return None
        except TooFewRowsError as error:
            option, size = self._limit()
            raise UserError(f"{option} {size}, --method {method}: {error}") from error
        except ValueError as error:
            raise UserError(f"--method {method}, {len(x)} rows: {error}") from error

    def _limit(self) -> tuple[str, int]:
        """Return the option that limits the number of examples of the fit, and this number."""
        sizes = {"--fit-size": self.options.fit_size, "--train-size": len(self.task.train)}
        return min(sizes.items(), key=lambda size: size[1])

    def _predictions(
        self, aligners: dict[str, Aligner], spread: tuple[torch.Tensor, torch.Tensor]
    ) -> dict[str, np.ndarray]:
        import torch

        task, heldout = self.task, self.task.heldout
        run = [name for name in self.methods if name not in (RANDOM_LABELS, *self.undefined)]
        shape = (len(heldout), self.b.config.num_labels)
        logits = {name: np.empty(shape, np.float32) for name in run}
        noise = torch.Generator().manual_seed(self.options.seed)
        with torch.no_grad():
            for rows, _, batch_b, own in self._batches(heldout, "injecting"):
                for method in run:
                    if method == RANDOM_EMBEDDINGS:
                        drawn = torch.randn(len(own), len(spread[0]), generator=noise)
                        states = spread[0] + spread[1] * drawn.to(self.device)
                    else:
                        states = aligners[method].transform(own) if method in aligners else own
                    logits[method][rows] = self._logits(method, states, batch_b).cpu().numpy()
        found = {name: predictions_of(values, task) for name, values in logits.items()}
        draw = np.random.default_rng(self.options.seed)
        found[RANDOM_LABELS] = draw.choice(task.train.labels, len(heldout))
        return found

    def _logits(
        self, method: str, states: torch.Tensor, batch: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        """Return the logits of B with `states` in place of its own; for `ITSELF`, of B alone."""
        if method == ITSELF:
            return self.b(**batch).logits

        def change(own: torch.Tensor) -> torch.Tensor:
            changed = own.clone()
            changed[self._places(self.b, batch)] = states.to(own.dtype)
            return changed

        with replaced_states(self.b, self.layer, change):
            return self.b(**batch).logits

    def _batches(
        self, examples: Examples, description: str
    ) -> Iterator[tuple[np.ndarray, dict[str, Any], dict[str, Any], torch.Tensor]]:
        """Yield row numbers, the batch for A, the batch for B, and the states of A to map."""
        encoded_a, encoded_b = (encode(t, examples, self.length) for t in self.tokenizers)
        if self.options.tokens == ALL:
            self._require_same_tokens(examples, encoded_a, encoded_b)
        tokenizer_a, tokenizer_b = self.tokenizers
        with progress(description, len(examples)) as advance:
            for rows, batch_b in batches(tokenizer_b, encoded_b, EVALUATION_BATCH, self.device):
                batch_a = _flat(pad(tokenizer_a, [encoded_a[row] for row in rows], self.device))
                states = layer_states(self.a, batch_a)[self.layer]
                yield rows, batch_a, batch_b, self._picked(self.a, states, batch_a)
                advance(len(rows))

    def _picked(
        self, model: PreTrainedModel, states: torch.Tensor, batch: dict[str, Any]
    ) -> torch.Tensor:
        return states[self._places(model, batch)]

    def _places(self, model: PreTrainedModel, batch: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """Return the index, into states [b, t, p], of the tokens that are mapped."""
        import torch

        mask = batch["attention_mask"].flatten(0, -2)  # in multiple choice, b counts all choices
        if self.options.tokens == ALL:
            return tuple(mask.nonzero(as_tuple=True))
        index = architecture_of(model).token_index(mask)
        return torch.arange(len(mask), device=mask.device), index

    def _require_same_tokens(
        self, examples: Examples, encoded_a: list[dict[str, Any]], encoded_b: list[dict[str, Any]]
    ) -> None:
        for example, a, b in zip(examples.ids, encoded_a, encoded_b, strict=True):
            if a["input_ids"] != b["input_ids"]:
                raise UserError(
                    f"--tokens {ALL}: wanted models that split texts into the same tokens, found "
                    f"different tokens of {self.names[0]} and {self.names[1]} in example {example}"
                )


def _flat(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return `batch` with all choices of all examples in one axis, as an encoder takes it."""
    return {name: tensor.flatten(0, -2) for name, tensor in batch.items()}
