"""A pair of models for injection: maps fitted on states of both, and the predictions with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simlab.errors import UserError, argument
from simlab.experiments.injection_options import SAME_WIDTH, TABLE_5, InjectOptions
from simlab.experiments.injection_states import FitRows, PairStates
from simlab.experiments.tuning import best_setting, settings_of, third_split
from simlab.models.classes import head_of
from simlab.models.evaluate import metric_columns, predict_logits, predictions_of
from simlab.models.load import load_classifier, load_tokenizer
from simlab.models.place import AUTO
from simlab.models.sources import ModelSource
from simlab.store.console import err, warnings_as_notes
from simlab.store.files import hash_json
from simlab.store.results import (
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
from simlab.tasks.metrics import score

if TYPE_CHECKING:
    import torch

    from simcore.align import Aligner
    from simlab.tasks import Task

_DRAWN = (RANDOM_LABELS, RANDOM_CLASSIFIER)  # predictions that need no states of A


class InjectionPair:
    """Models A and B, loaded, for injections of states of A into B."""

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
        self.states = PairStates(source_a, source_b, task, options, device)
        self.methods = self._chosen_methods()
        # For each method without a value, the reason; filled when the maps are fitted.
        self.undefined: dict[str, str] = {}
        # For each method, the setting that the search chose.
        self.chosen: dict[str, dict[str, Any]] = {}

    def rows(self, a: Side, b: Side) -> list[ResultRow]:
        """Return the rows of the results table, with every metric of every method."""
        task, layer = self.task, self.states.layer
        aligners, spread = self._fit()
        predicted = self._predictions(aligners, spread)
        return [
            ResultRow(
                experiment=INJECTION,
                kind=self.options.tokens,
                options=self._options(method),
                **a.columns("x"),
                **b.columns("y"),
                layer_x=layer,
                layer_y=layer,
                n=len(task.heldout),
                task=task.name,
                **columns,
            )
            for method in self.methods
            for columns in _columns(predicted.get(method), task)
        ]

    @cached_property
    def draw_seed(self) -> int:
        """Return the seed of random heads, states and labels, which is another for every pair."""
        models = [source.fingerprint for source in self.sources]
        return int(hash_json([self.options.seed, *models])[:8], 16)

    def _options(self, method: str) -> str:
        how = self.options.protocol(method)
        reason = {"undefined": self.undefined[method]} if method in self.undefined else {}
        tuned = {CHOSEN: self.chosen[method]} if method in self.chosen else {}
        return json.dumps({"method": method, **how, **tuned, **reason})

    def _chosen_methods(self) -> tuple[str, ...]:
        wanted = self.options.methods
        widths = self.states.widths
        left_out = set(SAME_WIDTH) if widths[0] != widths[1] else set()
        for method in left_out.intersection(wanted or ()):
            raise UserError(
                f"{argument('methods', method)}: wanted models of one width, found {widths[0]} and "
                f"{widths[1]}"
            )
        if self.original is None:
            left_out.add(RANDOM_CLASSIFIER)
        return wanted or tuple(name for name in TABLE_5 if name not in left_out)

    def _fit(self) -> tuple[dict[str, Aligner], tuple[torch.Tensor, torch.Tensor]]:
        """Return the fitted maps by method, and mean and spread of B's states in training rows."""
        import torch

        fitted = [name for name in self.methods if name in FITTED]
        if not fitted and RANDOM_EMBEDDINGS not in self.methods:
            return {}, (torch.empty(0), torch.empty(0))
        rows = self.states.fit_rows(self.task.train.head(self._limit()[1]))
        aligners = {name: self._fitted(name, rows) for name in fitted}
        defined = {name: aligner for name, aligner in aligners.items() if aligner is not None}
        return defined, (rows.injected.mean(0), rows.injected.std(0))

    def _fitted(self, method: str, rows: FitRows) -> Aligner | None:
        """Return the fitted map from A to B; if it is undefined, note why and return None."""
        from simcore.align import ConstantRowsError, TooFewRowsError

        try:
            with warnings_as_notes():
                if self.options.tune is not None:
                    self.chosen[method] = self._tuned(method, rows, self.options.tune)
                return self._aligner(method, self.chosen.get(method, {})).fit(rows.x, rows.y)
        except ConstantRowsError as error:
            self.undefined[method] = f"{error} (X: states of A, Y: states of B)"
            return None
        except TooFewRowsError as error:
            option, size = self._limit()
            if self.options.methods is not None:
                raise UserError(
                    f"{argument(option, size)}, {argument('methods', method)}: {error}"
                ) from error
            self.undefined[method] = f"{option} {size}: {error}"
            return None
        except ValueError as error:
            where = f"{argument('methods', method)}, {len(rows.x)} rows"
            raise UserError(f"{where}: {error}") from error

    def _tuned(self, method: str, rows: FitRows, budget: int) -> dict[str, Any]:
        """Return the setting with the least error on rows of the fit that it was not fitted on."""
        parts = third_split(rows.example, self.options.seed)

        def errors(setting: dict[str, Any]) -> list[float]:
            aligner = self._aligner(method, setting).fit(rows.x[parts.train], rows.y[parts.train])
            return [aligner.errors(rows.x[parts.heldout], rows.y[parts.heldout]).relative]

        return best_setting(settings_of(method, budget), errors)

    def _aligner(self, method: str, setting: dict[str, Any]) -> Aligner:
        from simcore.align import METHODS as ALIGNERS

        params = self.options.params(method) | setting
        if method in LEARNT:
            params["progress"] = err.is_terminal
        return ALIGNERS[method](**params)

    def _limit(self) -> tuple[str, int]:
        """Return the argument that limits the number of examples of the fit, and this number."""
        sizes = {"fit_size": self.options.fit_size, "train_size": len(self.task.train)}
        return min(sizes.items(), key=lambda size: size[1])

    def _predictions(
        self, aligners: dict[str, Aligner], spread: tuple[torch.Tensor, torch.Tensor]
    ) -> dict[str, np.ndarray]:
        import torch

        task, heldout = self.task, self.task.heldout
        run = [name for name in self.methods if name not in (*_DRAWN, *self.undefined)]
        shape = (len(heldout), cast(int, self.states.b.config.num_labels))
        logits = {name: np.empty(shape, np.float32) for name in run}
        noise = torch.Generator().manual_seed(self.draw_seed)
        with torch.no_grad():
            for rows, batch, batch_b, own in self.states.mapped(heldout):
                continued = self.states.continuation(batch)
                for method in run:
                    if method == ITSELF:
                        batch_logits = self.states.b(**batch_b).logits
                    elif method == RANDOM_EMBEDDINGS:
                        drawn = torch.randn(len(own), len(spread[0]), generator=noise)
                        batch_logits = continued(spread[0] + spread[1] * drawn.to(own.device))
                    else:
                        mapped = aligners[method].transform(own) if method in aligners else own
                        batch_logits = continued(cast("torch.Tensor", mapped))
                    logits[method][rows] = batch_logits.cpu().numpy()
        if RANDOM_CLASSIFIER in self.methods:
            logits[RANDOM_CLASSIFIER] = self._fresh_logits()
        predictions = {name: predictions_of(values, task) for name, values in logits.items()}
        draw = np.random.default_rng(self.draw_seed)
        predictions[RANDOM_LABELS] = draw.choice(task.train.labels, len(heldout))
        return predictions

    def _fresh_logits(self) -> np.ndarray:
        """Return the held-out logits of the model before fine-tuning with a head drawn anew."""
        if self.original is None:
            raise ValueError(f"{RANDOM_CLASSIFIER}: wanted the model before fine-tuning")
        head = head_of(self.states.b.config)
        model = load_classifier(self.original, self.task, seed=self.draw_seed, head=head)
        model.to(self.states.device)  # type: ignore[arg-type]
        tokenizer = load_tokenizer(self.original)
        length = self.states.length
        return predict_logits(model, tokenizer, self.task.heldout, length, RANDOM_CLASSIFIER)


def _columns(predictions: np.ndarray | None, task: Task) -> Iterator[dict[str, Any]]:
    """Yield the columns of each metric; without predictions, the metric is undefined."""
    labels, questions = task.heldout.labels, task.heldout.questions
    for metric in task.all_metrics:
        if predictions is None:
            yield {"measure": metric, "value": float("nan")}
        else:
            value = score(metric, labels, predictions, questions)
            yield metric_columns(metric, value, predictions, labels, questions)
