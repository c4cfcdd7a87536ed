"""Truncate models (Phang et al. 2021, section 4): feed each layer straight to a head.

There are three modes:

* ``untuned``: the fine-tuned model's own head; nothing is trained. At the last layer, the logits
  equal the fine-tuned model's, bit for bit.
* ``tuned``: the layers of the fine-tuned model, with its head fine-tuned further for each layer.
* ``tuned-orig``: the layers of the model before fine-tuning, with a new head for each layer.

The encoder runs once over the examples, and `simlab.models.heads` trains the heads of all layers
together on the cached vectors.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.bounds import Length, bounded, replaced
from simlab.errors import UserError, argument, require_known
from simlab.models.checkpoint import Checkpoint, length_of, load_task_of
from simlab.models.classes import head_of
from simlab.models.evaluate import EVALUATION_BATCH, LayerReader, heldout_columns
from simlab.models.heads import HeadRecipe, classifier_vectors, stacked_logits, train_heads
from simlab.models.load import load_config
from simlab.models.place import AUTO, check_device, scratch_beside
from simlab.models.sources import ModelSource, resolve
from simlab.models.states import apply_head
from simlab.results.results import (
    BASELINE,
    MAJORITY,
    TFIDF,
    TFIDF_REGRESSION,
    TRUNCATIONS,
    ResultRow,
    Side,
    ensure_results,
)
from simlab.store.jobs import Outcome

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from simlab.models.heads import Parameters
    from simlab.tasks import Examples, Task, TaskOptions

UNTUNED, TUNED, TUNED_ORIG = MODES = tuple(TRUNCATIONS)
HEAD = "head_"  # before the names of fields of a `HeadRecipe`
# In keys: of options that earlier versions had, so that what they made stays.
GONE = {"tolerance": None, "metric": None}
INVERSE_PENALTY = 10.0  # of the linear model on TF-IDF weights


class Subject:
    """A fine-tuned model, opened once, with the held-out rows and the length of its fine-tuning."""

    def __init__(
        self,
        checkpoint: str | Path | ModelSource,
        task: str | Path | Task,
        task_options: TaskOptions | None,
        max_length: int | None,
    ) -> None:
        self.source = Checkpoint.open_classifier(checkpoint)
        self.task = load_task_of([self.source], task, task_options)
        self.length = length_of([self.source], max_length)  # tokens kept per example

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of every job that scores the model on the held-out rows."""
        return {
            "model": self.source.fingerprint,
            "heldout": self.task.heldout.fingerprint,
            "max_length": self.length,
            **self.task.metric_inputs,
        }


def heldout_rows(
    experiment: str, logits: np.ndarray, task: Task, model: Side, **place: Any
) -> list[ResultRow]:
    """Return a row for each metric of held-out logits [n, labels]; `place` has the layers."""
    common = {**model.columns(), **place, "n": len(task.heldout), "task": task.name}
    return [
        ResultRow(experiment=experiment, **common, **columns)
        for columns in heldout_columns(logits, task)
    ]


@dataclass(frozen=True)
class Truncated:
    """A model cut after every layer."""

    # The whole fine-tuned model; for ``tuned-orig`` the model before fine-tuning, with a new head.
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    # [layers + 1, n, labels] float32 of held-out rows, the embedding output first.
    logits: np.ndarray
    heads: Parameters | None  # [layers + 1, ...] each, trained; None for ``untuned``


@dataclass(frozen=True)
class TruncationOptions:
    """Options of a truncation.

    Attributes
    ----------
    modes
        Modes: ``untuned``, ``tuned`` and ``tuned-orig``.
    original
        Model before fine-tuning; None is the model that the checkpoint names.
    recipe
        How heads are trained.
    """

    modes: tuple[str, ...] = (UNTUNED,)
    original: str | None = None
    recipe: HeadRecipe = field(default_factory=HeadRecipe)

    def check(self) -> None:
        """Raise UserError if a mode is unknown or comes twice, or a value of the recipe is bad."""
        for mode in self.modes:
            require_known("modes", mode, MODES)
        if len(set(self.modes)) < len(self.modes):
            raise UserError(f"{argument('modes')}: wanted each once, found {', '.join(self.modes)}")
        self.recipe.check()

    def changed(self, changes: Mapping[str, Any]) -> TruncationOptions:
        """Return the options with fields replaced; ``head_<field>`` is a field of the recipe."""
        fields = {name: v for name, v in changes.items() if not name.startswith(HEAD)}
        heads = {name.removeprefix(HEAD): v for name, v in changes.items() if name not in fields}
        changed = replaced(self, fields)
        return dataclasses.replace(changed, recipe=replaced(changed.recipe, heads, prefix=HEAD))


def cut_model(
    source: Checkpoint,
    task: Task,
    max_length: int,
    mode: str,
    options: TruncationOptions,
    *,
    device: str = AUTO,
    scratch: Path | None = None,
    in_blocks: bool = True,
) -> Truncated:
    """Cut the fine-tuned model `source` after every layer."""
    how: dict[str, Any] = {"device": device, "scratch": scratch, "in_blocks": in_blocks}
    if mode == TUNED_ORIG:
        original = resolve(options.original or source.original)
        drawn: dict[str, Any] = {"seed": options.recipe.seed, "head": head_of(load_config(source))}
        reader = LayerReader(original, task, max_length, new_head=True, **drawn, **how)
    else:
        reader = LayerReader(source, task, max_length, **how)
    if mode == UNTUNED:
        return _untuned(reader, task, f"{mode}, {source.name}")
    return _tuned(reader, task, options.recipe, f"{mode}, {source.name}")


def truncation_rows(
    source: Checkpoint,
    task: Task,
    max_length: int,
    model: Side,
    options: TruncationOptions | None = None,
    *,
    device: str = AUTO,
    scratch: Path | None = None,
) -> list[ResultRow]:
    """Return the held-out metrics of fine-tuned model `source` cut after every layer, in all modes.

    The embedding output comes first, and `layer_x` is the layer fed to the head.
    """
    options = options or TruncationOptions()
    if set(options.modes) != {UNTUNED}:
        options.recipe.note_long_warmup()
    how: dict[str, Any] = {"device": device, "scratch": scratch}
    rows: list[ResultRow] = []
    for mode in options.modes:
        trained = None if mode == UNTUNED else json.dumps(options.recipe.record())
        truncated = cut_model(source, task, max_length, mode, options, **how)
        for layer, logits in enumerate(truncated.logits):
            place = {"layer_x": layer, "options": trained}
            rows += heldout_rows(TRUNCATIONS[mode], logits, task, model, **place)
    return rows


def majority_rows(task: Task) -> list[ResultRow]:
    """Return a row for each held-out metric of always predicting the most frequent class.

    Return no rows for regression, because a constant has no correlation.
    """
    if task.is_regression:
        return []
    labels = task.heldout.labels
    constant = np.full(len(labels), np.bincount(labels).argmax())
    return baseline_rows(Side(MAJORITY), task.scores(constant, labels), len(labels), task.name)


def tfidf_rows(task: Task) -> list[ResultRow]:
    """Return the held-out metrics of a linear model on TF-IDF weights, trained on the same rows.

    There is a row for each metric. The features are single words. The penalty is weaker than
    scikit-learn's default, which is too strong for rows of unit length: on RT the default costs the
    baseline one to two points. In multiple choice, the model learns which pairs of text and choice
    are right, and predicts the choice of the most likely pair.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline

    head = Ridge() if task.is_regression else LogisticRegression(C=INVERSE_PENALTY, max_iter=1000)
    model = make_pipeline(TfidfVectorizer(), head)
    train, heldout = task.train.each_choice(), task.heldout.each_choice()
    model.fit(_joined(train), train.labels)
    if task.is_multiple_choice:
        likely = model.decision_function(_joined(heldout)).reshape(len(task.heldout), -1)
        predictions = likely.argmax(axis=1)
    else:
        predictions = model.predict(_joined(heldout))
    name = TFIDF_REGRESSION if task.is_regression else TFIDF
    scores = task.scores(predictions, task.heldout.labels)
    return baseline_rows(Side(name), scores, len(predictions), task.name)


def baseline_rows(model: Side, scores: Mapping[str, float], n: int, task: str) -> list[ResultRow]:
    """Return a row of the results table for each metric of a whole model, without layers."""
    return [
        ResultRow(
            experiment=BASELINE, measure=metric, **model.columns(), value=value, n=n, task=task
        )
        for metric, value in scores.items()
    ]


def _joined(examples: Examples) -> list[str]:
    if examples.pairs is None:
        return list(examples.texts)
    return [f"{text} {pair}" for text, pair in zip(examples.texts, examples.pairs, strict=True)]


@bounded
def truncate(
    checkpoint: str | Path | ModelSource,
    task: str | Path | Task,
    out: str | Path,
    options: TruncationOptions | None = None,
    *,
    max_length: Length | None = None,
    label: str | None = None,
    seed: int | None = None,
    device: str = AUTO,
    task_options: TaskOptions | None = None,
    overwrite: bool = False,
    **changes: Any,
) -> Outcome:
    """Feed every layer of a fine-tuned model straight to a head, and write the metrics.

    Parameters
    ----------
    checkpoint
        A folder that `finetune` made; in Python also an open `Checkpoint`.
    task
        As for `finetune`.
    out
        The results file (.parquet) to write.
    options, **changes
        Modes and heads; keywords replace fields of `TruncationOptions`, such as
        ``modes=("untuned", "tuned")``, and with ``head_`` before their name fields of its
        `HeadRecipe`, such as ``head_learning_rate=1e-4``.
    max_length
        Tokens kept per example; None is as in the fine-tuning of the model, else 64.
    label
        Name of the model in results and figures.
    seed
        Seed of the fine-tuning, to store.
    device
        Where the model runs: ``cpu``, ``cuda``, ``cuda:1``; ``auto`` is a GPU if there is one; or
        ``offload``, for a model that is larger than memory: its blocks are read from the disk for
        each batch.
    task_options
        Columns and split of the task; the default split is the split of the fine-tuning.
    overwrite
        Make `out` anew if it was made from other inputs; if False, raise an error instead.

    Returns
    -------
    Outcome
        The results file: the held-out metrics for each mode and layer (`truncation_rows`), and the
        metrics of always predicting the most frequent class.

    Raises
    ------
    UserError
        `checkpoint` is not a fine-tuned checkpoint, its head does not fit the task, a mode is
        unknown, or `out` has other content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, finetune, read_results, truncate
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = finetune("minilm", "rt", "runs/ft-1", seed=1, max_steps=2, task_options=few)
    >>> step = truncate("runs/ft-1", "rt", "runs/results/truncation.parquet")
    >>> frame = read_results(step.path)
    >>> frame.loc[frame["experiment"] == "truncation-untuned", "layer_x"].tolist()
    [0, 1, 2, 3, 4, 5, 6]
    """
    options = (options or TruncationOptions()).changed(changes)
    options.check()
    check_device(device, in_blocks=True)
    subject = Subject(checkpoint, task, task_options, max_length)
    source, task = subject.source, subject.task
    model = source.side(label or source.folder.name, seed)
    inputs = {
        "step": "truncate",
        **subject.inputs,
        "named": vars(model),
        "modes": list(options.modes),
        "tolerance": GONE["tolerance"],
        **tuning_inputs(source, task, options),
    }

    def make() -> list[ResultRow]:
        with scratch_beside(Path(out)) as scratch:
            place: dict[str, Any] = {"device": device, "scratch": scratch}
            rows = truncation_rows(source, task, subject.length, model, options, **place)
        return [*rows, *majority_rows(task)]  # the figure shows the majority class as a line

    return ensure_results(Path(out), inputs, make, replace=overwrite)


def tuning_inputs(source: Checkpoint, task: Task, options: TruncationOptions) -> dict[str, Any]:
    """Return the inputs of a job that trained heads depend on, besides the fine-tuned model."""
    inputs: dict[str, Any] = {}
    if set(options.modes) - {UNTUNED}:
        inputs |= {"train": task.train.fingerprint, "recipe": options.recipe.record()}
    if TUNED_ORIG in options.modes:
        original = resolve(options.original or source.original)
        inputs["original"] = original.fingerprint
    return inputs


def _untuned(reader: LayerReader, task: Task, description: str) -> Truncated:
    def logits(hidden: torch.Tensor, mask: torch.Tensor, _is_last: bool) -> torch.Tensor:
        return apply_head(reader.model, hidden, mask)

    (gathered,) = reader.gather(logits, description, task.heldout)
    return Truncated(reader.model, reader.tokenizer, gathered.numpy(), None)


def _tuned(reader: LayerReader, task: Task, recipe: HeadRecipe, description: str) -> Truncated:
    """Train the heads of all layers on the training rows, and compute held-out logits."""
    import torch

    model = reader.model

    def vectors(hidden: torch.Tensor, mask: torch.Tensor, is_last: bool) -> torch.Tensor:
        return classifier_vectors(model, hidden, mask, is_last, description)

    read = task.train
    if len(read) > recipe.most_rows:  # the steps of heads read no more, and vectors take memory
        draw = np.random.default_rng(recipe.seed)
        read = read.at(sorted(draw.choice(len(read), recipe.most_rows, replace=False)))
    train, heldout = reader.gather(vectors, description, read, task.heldout)
    labels = torch.as_tensor(read.labels)
    labels = labels.float() if task.is_regression else labels
    heads = train_heads(model, train, labels, recipe)
    with torch.inference_mode():
        logits = [
            stacked_logits(model, heads, part.to(reader.device)).cpu()
            for part in heldout.split(EVALUATION_BATCH, dim=1)
        ]
    return Truncated(model, reader.tokenizer, torch.cat(logits, dim=1).numpy(), heads)
