"""Layer injection (Ren et al. 2023, section 4.5): a model continues from another's hidden states.

At layer l, ``g(hidden states of A)`` replaces the hidden states of model B, at the classifier token
or at all tokens. The rest of B runs unchanged, and its predictions are scored on the held-out
examples. The maps g are fitted on training examples only.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError
from simlab.experiments.options import check_counts, check_methods, map_params
from simlab.models.batches import batches, encode, pad
from simlab.models.evaluate import EVALUATION_BATCH, predictions_of
from simlab.models.load import load_classifier, load_encoder, load_tokenizer, require_head
from simlab.models.recognise import architecture_of
from simlab.models.sources import ModelSource, resolve
from simlab.models.states import layer_states, replaced_states
from simlab.store.console import err, progress, warnings_as_notes
from simlab.store.files import hash_json
from simlab.store.jobs import Outcome
from simlab.store.results import (
    FITTED,
    IDENTITY,
    INJECTION,
    ITSELF,
    METHODS,
    RANDOM_EMBEDDINGS,
    RANDOM_LABELS,
    ResultRow,
    ensure_results,
)
from simlab.store.runtime import best_device
from simlab.tasks.trained_lengths import chosen_length, length_of
from simlab.tasks.trained_splits import load_task_of

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from simcore.align import Aligner
    from simlab.tasks import Examples, Task, TaskOptions

# The methods of table 5 of Ren et al. 2023, which are the default.
TABLE_5 = tuple(name for name in METHODS if name not in ("svcca", "linear-gd"))
SAME_WIDTH = (IDENTITY, "inn")
CLASSIFIER, ALL = "cls", "all"
TOKENS = (CLASSIFIER, ALL)
FIT_SIZE = 1600  # examples, as in the tables of Ren et al. 2023


@dataclass(frozen=True)
class InjectOptions:
    """Options of an injection: the layer and tokens to replace, and the maps.

    Attributes
    ----------
    layer
        Number of the layer; 0 is the embedding output, None the last layer.
    methods
        Names in `METHODS`. None is `TABLE_5`, without the two methods in `SAME_WIDTH` if the models
        have different widths.
    tokens
        The tokens to replace: ``cls``, the classifier token, or ``all``.
    fit_size
        Number of training examples that the maps are fitted on.
    max_length
        Tokens kept per example; None is the length of B's fine-tuning.
    epochs
        Passes over the rows for maps that are trained; None is the default of the aligners.
    seed
        Seed of maps that are trained, and of random states and labels.
    """

    layer: int | None = None
    methods: tuple[str, ...] | None = None
    tokens: str = CLASSIFIER
    fit_size: int = FIT_SIZE
    max_length: int | None = None
    epochs: int | None = None
    seed: int = 0

    def check(self) -> None:
        """Raise UserError if a method or the tokens are unknown, or a number is out of range."""
        check_methods(self.methods or (), METHODS)
        if self.tokens not in TOKENS:
            raise UserError(f"--tokens {self.tokens}: wanted {' or '.join(TOKENS)}")
        check_counts(self, "fit_size", "epochs")


def inject(
    a: str | Path | ModelSource,
    b: str | Path | ModelSource,
    task: str | Path | Task,
    out: str | Path,
    options: InjectOptions | None = None,
    *,
    label_a: str | None = None,
    label_b: str | None = None,
    task_options: TaskOptions | None = None,
    overwrite: bool = False,
    **changes: Any,
) -> Outcome:
    """Let model B continue from g(hidden states of A) at one layer, and score B for several maps g.

    The results file has a row for each method and metric of the task, scored on B's held-out rows.

    If the states do not allow a method, its value is nan, and its ``options`` give the reason under
    ``undefined``. Canonical maps, for example, need rows that differ, but at the embedding output
    the classifier token is the same vector in every text.

    Parameters
    ----------
    a
        ``minilm`` (offline), a local folder, or a model of the hub.
    b
        A folder that `finetune` made.
    task
        A name of `simcore tasks`, a file, a data set of the hub, or a task that `load_task` gave.
    out
        The results file (.parquet) to write.
    options, **changes
        Layer, tokens and maps; keywords replace fields of `InjectOptions`, such as ``layer=6`` or
        ``methods=("itself", "linear")``.
    label_a, label_b
        Names of the models in results and figures.
    task_options
        Columns and split of the task; the default split is the split of B's fine-tuning.
    overwrite
        Make `out` anew if it was made from other inputs; if False, raise an error instead.

    Returns
    -------
    Outcome
        Path of the results file, and whether it was there before; `read_results` reads it.

    Raises
    ------
    UserError
        A method is unknown, a model does not have the layer, B has no head for the task, the models
        split the texts into different tokens (with all tokens), there are too few examples, or
        `out` has other content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, finetune, inject, read_results
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = finetune("minilm", "rt", "runs/ft-1", seed=1, max_steps=2, task_options=few)
    >>> methods = ("itself", "identity", "random-labels")
    >>> out = "runs/results/injection.parquet"
    >>> step = inject("minilm", "runs/ft-1", "rt", out, layer=3, methods=methods)
    >>> len(read_results(step.path))
    3
    """
    options = dataclasses.replace(options or InjectOptions(), **changes)
    options.check()
    source_a, source_b = resolve(a), resolve(b)
    folders = [source_b.path, source_a.path]
    task = load_task_of(folders, task, task_options)
    options = dataclasses.replace(options, max_length=length_of(folders, options.max_length))
    names = (label_a or source_a.name, label_b or source_b.name)
    inputs = {
        "step": INJECTION,
        "models": [source_a.fingerprint, source_b.fingerprint],
        "train": task.train.fingerprint,
        "heldout": task.heldout.fingerprint,
        "labels": names,
        "options": hash_json(asdict(options)),
        **task.metric_inputs,
    }

    def make() -> list[ResultRow]:
        pair = InjectionPair(source_a, source_b, task, options)
        return pair.rows(*names)

    return ensure_results(Path(out), inputs, make, replace=overwrite)


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
