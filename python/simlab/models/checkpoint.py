"""A checkpoint, opened once: the model, and the record that its fine-tuning left in its folder.

`simcore finetune` and `simcore truncate --export` write ``evaluation.json`` beside the weights.
Whatever a later step asks of a model (its task, splits, length, head, original, scores) is answered
by one `Checkpoint`, which is handed on in place of the folder.

The record has the split of the task, after the splits of every earlier fine-tuning of the model. A
later step on the same data uses the last of these splits where no option says otherwise, and
refuses options that would hold out rows that the checkpoint was ever trained on. A model that reads
more or fewer tokens than in its fine-tuning has other layers and another metric, so a later step
cuts texts at the length of the fine-tuning unless an option names another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from simlab.errors import UserError, argument
from simlab.models import adapters
from simlab.models.hub import CONFIG
from simlab.models.load import read_config
from simlab.models.sources import ModelSource, base_name, resolve, run_name, with_base
from simlab.results.results import FT, ORIG, RANDOM, Side
from simlab.store.console import note
from simlab.store.files import read_json
from simlab.tasks import ALL, TEST, Examples, Task, TaskOptions, load_corpus, load_task, load_test

EVALUATION = "evaluation.json"
_OURS = frozenset({"task", "metric"})  # other tools write files of this name too
_FIELDS = ("model", "task", "metric", "scores", "n", "splits")
_LENGTH = "max_length"
DEFAULT_MAX_LENGTH = 64  # of models that simlab did not fine-tune
_SIZES = ("train_size", "heldout_size", "split_seed")
_KEPT = (*_SIZES, "labels")
_HEADS = ("ForSequenceClassification", "ForMultipleChoice")


@dataclass(frozen=True)
class Checkpoint(ModelSource):
    """A model of transformers, and the record of its fine-tuning if simlab fine-tuned it."""

    # Content of ``evaluation.json``; empty for a model that simlab did not fine-tune.
    evaluation: Mapping[str, Any] = field(default_factory=dict, compare=False)
    # Names of classes in the configuration.
    architectures: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def open(cls, model: str | Path | ModelSource) -> Checkpoint:
        """Find a model, as `resolve` does, and read its records; an open checkpoint is returned."""
        source = resolve(model)
        if isinstance(source, Checkpoint):
            return source
        read = read_evaluation(source.path)
        names = _architectures(source)
        own: dict[str, Any] = {
            "family": source.family,
            "step": source.step,
            "adapter": source.adapter,
        }
        return cls(source.name, source.path, read, names, **own)

    @classmethod
    def open_classifier(cls, model: str | Path | ModelSource) -> Checkpoint:
        """Open the checkpoint in a folder, and check that its model has a head for a task.

        Loading a model without a head as a classifier would draw a random head.
        """
        if not isinstance(model, ModelSource):
            folder = Path(model)
            is_adapter = adapters.is_adapter(folder)
            model = with_base(str(model), folder) if is_adapter else ModelSource(str(model), folder)
        if not model.path.is_dir():
            raise UserError(
                f"{model.path}: wanted the folder of a checkpoint, as `simcore finetune` writes "
                "one, found no such folder"
            )
        opened = cls.open(model)
        if not opened.has_head:
            found = ", ".join(opened.architectures) or "none"
            raise UserError(
                f"{opened.folder}: wanted a checkpoint with a head for a task, as one "
                f"written by `simcore finetune`, found {found}"
            )
        return opened

    @property
    def is_tuned(self) -> bool:
        """Whether simlab fine-tuned the model; an adapter is trained elsewhere."""
        return bool(self.evaluation) and self.adapter is None

    def is_adapter_of(self, other: Checkpoint) -> bool:
        """Whether this is an adapter, and `other` the whole model that it was trained on."""
        own = self.adapter is not None and other.adapter is None
        return own and self.path.samefile(other.path)

    @property
    def has_head(self) -> bool:
        """Whether the model has a head for a task by its configuration."""
        return any(name.endswith(_HEADS) for name in self.architectures)

    @property
    def splits(self) -> list[dict[str, Any]]:
        """The split of every task that the model was trained on, in order."""
        return self.evaluation.get("splits", [])

    @property
    def length(self) -> int | None:
        """The number of tokens per example of the last fine-tuning; None if there was none."""
        # A shortened model has no recipe, and its length beside the scores.
        return self._recipe.get(_LENGTH, self.evaluation.get(_LENGTH))

    @property
    def seed(self) -> int | None:
        """The seed of the fine-tuning; None if there was none."""
        return self._recipe.get("seed")

    @property
    def scores(self) -> dict[str, float]:
        """Every held-out metric by its name, the main metric first."""
        return self.evaluation["scores"]

    @property
    def base(self) -> str | None:
        """The model whose weights the fine-tuning began with; None if they were random."""
        if self.adapter is not None:
            return adapters.base_of(self.name, self.adapter)
        return None if self._recipe.get("random_init") else self.evaluation.get("model")

    @property
    def original(self) -> str:
        """The name of the model before fine-tuning."""
        if self.base is not None:
            return self.base
        why = "does not name that model"
        if self.is_tuned:
            why = (
                "was trained from random weights and not from the weights of "
                f"{self.evaluation['model']}"
            )
        raise UserError(
            f"{argument('original')}: wanted the model before fine-tuning, because {self.path} "
            f"{why}, found none"
        )

    def at(self, step: int | None) -> Checkpoint:
        """Return the model as a step of its training; None leaves it as it is.

        The base of a model before fine-tuning is then its run.
        """
        if step is None:
            return self
        family = self.family
        if family is None and not (self.is_tuned or self.has_head):
            family = base_name(run_name(self.name))
        return replace(self, step=step, family=family)

    def side(
        self, label: str, seed: int | None = None, random_init_seed: int | None = None
    ) -> Side:
        """Return how rows name the model: its label, seed, base and stage.

        The base of a model with a head that simlab did not train is unknown. A model without a head
        is a base itself.
        """
        if random_init_seed is not None:
            return Side(label, seed, self.base_name, RANDOM, self.step)
        if self.is_tuned or self.has_head or self.adapter is not None:
            return Side(label, seed, self._base_name, FT, self.step)
        return Side(label, seed, self.base_name, ORIG, self.step)

    @property
    def _base_name(self) -> str | None:
        """The name of the base in rows of results; None if the base is unknown."""
        if self.base is None:
            return None
        named = None if self.adapter is not None else self.evaluation.get("base")
        return self.family or named or base_name(self.base)

    @property
    def _recipe(self) -> Mapping[str, Any]:
        return {} if self.adapter is not None else self.evaluation.get("recipe", {})


def read_evaluation(folder: Path) -> Mapping[str, Any]:
    """Return ``evaluation.json`` of a model folder; empty if there is none, or another tool's."""
    file = folder / EVALUATION
    evaluation = read_json(file) if file.is_file() else None
    if not isinstance(evaluation, dict) or not evaluation.keys() >= _OURS:
        return {}
    there = {*evaluation, *evaluation.get("recipe", ())}
    lacking = [name for name in (*_FIELDS, _LENGTH) if name not in there]
    if lacking:
        raise UserError(
            f"{file}: wanted a record of `simcore finetune`, found one without {', '.join(lacking)}"
        )
    return evaluation


def _architectures(source: ModelSource) -> tuple[str, ...]:
    if source.adapter is not None:
        return (adapters.trained_class(source.adapter).__name__,)
    config = source.path / CONFIG
    names = read_config(config).get("architectures") if config.is_file() else None
    return tuple(names or ())


def split_records(source: Checkpoint | None, task: Task) -> list[dict[str, Any]]:
    """Return the split of every earlier fine-tuning of `source`, and then of `task`.

    `source` is the model that was fine-tuned on `task`; None if its weights were random.
    """
    own = {
        "train_size": len(task.train),
        "heldout_size": len(task.heldout),
        "split_seed": task.split_seed,
        "labels": task.labels,
        "train_texts_sha256": task.train.text_fingerprint,
    }
    earlier = [] if source is None else source.splits
    return [*(record for record in earlier if record != own), own]


def load_task_of(
    checkpoints: Sequence[Checkpoint], task: str | Path | Task, options: TaskOptions | None = None
) -> Task:
    """Load a task for models that may have been trained on some of its rows.

    Sizes, seed and kind of labels that `options` leave open are as for the first model that was
    fine-tuned on the same data; a model that was trained on a held-out row is refused. A task that
    has been loaded already is returned unchanged.
    """
    if isinstance(task, Task):
        if options is not None:
            raise ValueError(f"task_options: wanted None with a loaded task, found {options}")
        return task
    name, options = str(task), options or TaskOptions()
    trained = [
        (checkpoint, record, own)
        for checkpoint in checkpoints
        for record in reversed(checkpoint.splits)
        if (own := _trained_on(record, name, options)) is not None
    ]
    if trained:
        _, first, same = trained[0]
        left_open = {one: first.get(one) for one in _KEPT if getattr(options, one) is None}
        chosen = replace(options, **left_open)
        if any(getattr(chosen, one) != first.get(one) for one in _KEPT):
            same = load_task(name, chosen)
    else:
        same = load_task(name, options)
    for checkpoint, record, own in trained:
        _require_unseen(checkpoint.path, record, own, same)
    return same


def load_examples(
    checkpoints: Sequence[Checkpoint],
    task: str | Path | Task,
    split: str,
    options: TaskOptions | None = None,
    limit: int | None = None,
) -> tuple[str, Examples]:
    """Return the name of a task or corpus, and the examples of a split.

    The split is ``heldout``, ``train``, ``test`` (the rows of a test split, without labels), or
    ``all``: every text in its order. `limit` counts examples from the first.
    """
    if split in (TEST, ALL):
        texts = load_test(task, options) if split == TEST else load_corpus(task, options)
        name, examples = texts.name, texts.examples
    else:
        loaded = load_task_of(checkpoints, task, options)
        name, examples = loaded.name, loaded.split(split)
    return name, examples if limit is None else examples.head(limit)


def chosen_length(checkpoints: Sequence[Checkpoint], given: int | None) -> int:
    """Return the number of tokens to keep per example, for models that may have been fine-tuned.

    The length `given` comes first, then the length of the first model that simlab fine-tuned, and
    then `DEFAULT_MAX_LENGTH`.
    """
    if given is not None:
        return given
    lengths = (checkpoint.length for checkpoint in checkpoints)
    return next((length for length in lengths if length is not None), DEFAULT_MAX_LENGTH)


def length_of(checkpoints: Sequence[Checkpoint], given: int | None) -> int:
    """Return `chosen_length`, and print a note for each model fine-tuned with another length."""
    length = chosen_length(checkpoints, given)
    for checkpoint in dict.fromkeys(checkpoints):
        if checkpoint.length not in (None, length):
            note(
                f"{checkpoint.path} was fine-tuned on texts of at most {checkpoint.length} tokens, "
                f"and reads at most {length} now ({argument('max_length', length)})"
            )
    return length


def _trained_on(record: dict[str, Any], name: str, options: TaskOptions) -> Task | None:
    """Return task `name` split as in `record`; None if this gives other training rows."""
    try:
        task = load_task(name, replace(options, **{one: record.get(one) for one in _KEPT}))
    except UserError:  # fewer rows than in the record, or an error that `load_task` raises again
        return None
    return task if task.train.text_fingerprint == record["train_texts_sha256"] else None


def _require_unseen(folder: Path, record: dict[str, Any], trained: Task, task: Task) -> None:
    leaked = len(set(trained.train.ids).intersection(task.heldout.ids))
    if leaked:
        own = " ".join(argument(size, record[size]) for size in _SIZES)
        raise UserError(
            f"{argument('heldout_size')}, {argument('split_seed')}: wanted held-out rows that "
            f"{folder} was not trained on (the split of {folder} is {own}), found {leaked} of "
            f"{len(task.heldout)} among its training rows"
        )
