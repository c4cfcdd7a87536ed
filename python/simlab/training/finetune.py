"""Fine-tune a model with the Hugging Face Trainer: seeded, resumable, atomic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.bounds import Count, bounded, check_values
from simlab.errors import UserError, argument
from simlab.models.alone import reads_padding
from simlab.models.batches import collator, encode, require_even_choices
from simlab.models.checkpoint import EVALUATION, Checkpoint, load_task_of, split_records
from simlab.models.evaluate import metric_columns, predict_logits, predictions_of
from simlab.models.load import load_classifier, load_tokenizer
from simlab.models.padding import encode_for_head
from simlab.models.place import AUTO, check_device, place
from simlab.models.sources import ModelSource
from simlab.store.console import note, progress
from simlab.store.files import write_json
from simlab.store.jobs import Outcome, run_job
from simlab.store.runtime import quiet_libraries
from simlab.training.freezing import (
    freeze_layers,
    parameter_counts,
    parse_freeze,
    require_freezable,
)
from simlab.training.recipes import QUICK, Recipe, make_recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

    from simlab.tasks import Task, TaskOptions
    from simlab.training.callbacks import CKACallback

CKA_RESULTS = "cka.parquet"
_FEWEST_PROBES, _MOST_PROBES = 2, 512  # held-out rows on which CKA is recorded during training


@bounded
def finetune(
    model: str | Path | ModelSource,
    task: str | Path | Task,
    out: str | Path,
    recipe: str | Recipe = QUICK,
    *,
    task_options: TaskOptions | None = None,
    cka_every: Count | None = None,
    device: str = AUTO,
    overwrite: bool = False,
    **changes: Any,
) -> Outcome:
    """Fine-tune a model on the training rows of a task, and evaluate it on the held-out rows.

    Parameters
    ----------
    model
        ``minilm`` (offline), a local folder, or a model of the hub.
    task
        A name of `simcore tasks` (`rt`, `imdb`, `stsb`, `quartz` are offline), NAME:FOLDER for a
        folder with its files, a csv/tsv/json/jsonl/parquet file, or ``hub:NAME[:CONFIG]``; in
        Python also a task that `load_task` gave.
    out
        The checkpoint folder to make, with model, tokenizer (plain ``from_pretrained`` loads both,
        but for the head of jiant) and ``evaluation.json``. An interrupted run continues at its
        last Trainer checkpoint and ends with the weights of a run without interruption.
    recipe
        Recipe: ``quick``, ``phang2021``, ``wu2020`` or ``ren2023``; in Python also a `Recipe`.
    **changes
        Keywords replace fields of the recipe, such as ``seed=2`` or ``freeze="bottom:2"``.
    task_options
        Columns and split of the task.
    cka_every
        Every so many steps, record the CKA of each layer with its initial state, on held-out rows,
        in ``cka.parquet`` of the folder.
    device
        As for `leave_out`.
    overwrite
        As for `truncate`.

    Returns
    -------
    Outcome
        The checkpoint folder, and the seconds that training took.

    Raises
    ------
    UserError
        The recipe, model or task is bad, the labels do not vary, there are too few held-out rows
        for CKA, the disk is full, or `out` has other content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, finetune
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> finetune("minilm", "rt", "runs/ft-1", seed=1, max_steps=2, task_options=few).path
    PosixPath('runs/ft-1')
    """
    check_values(Recipe, changes)
    check_device(device, in_blocks=False)
    source = Checkpoint.open(model)
    require_trainable(source, recipe, changes)
    task = load_task_of([source], task, task_options)
    recipe = make_recipe(recipe, task.name, changes)
    require_varied_labels(task)
    if cka_every is not None and len(task.heldout) < _FEWEST_PROBES:
        raise UserError(
            f"{argument('heldout_size', len(task.heldout))}: wanted at least {_FEWEST_PROBES} rows "
            f"for {argument('cka_every')}"
        )
    inputs = {
        "step": "finetune",
        "model": source.fingerprint,
        "train": task.train.fingerprint,
        "heldout": task.heldout.fingerprint,
        "labels": list(task.label_names),
        "recipe": asdict(recipe),
        "cka_every": cka_every,
    }

    def make(partial: Path) -> None:
        from simlab.training.trainer import trainer_folder

        with trainer_folder(partial) as scratch:
            computes = place(source, None, device, random_init=recipe.random_init, in_blocks=False)
            _train(source, task, recipe, scratch, cka_every, computes)

    return run_job(Path(out), inputs, make, replace=overwrite, resumable=True)


def require_trainable(
    source: ModelSource,
    recipe: str | Recipe,
    changes: Mapping[str, Any],
    freezes: Sequence[str] = (),
) -> None:
    """Check recipe and frozen layers before the task is read.

    `freezes` are ways of freezing besides the recipe's own.
    """
    checked = make_recipe(recipe, "", changes)
    require_freezable(source, [checked.freeze, *freezes])


def require_varied_labels(task: Task) -> None:
    """Check that the training labels differ, and the held-out labels of a regression as well."""
    # Multiple choice can be learnt even if the right choice has the same number in every row.
    splits = (
        {} if task.is_multiple_choice else {f"training rows ({argument('train_size')})": task.train}
    )
    if task.is_regression:  # a correlation is undefined if all labels are the same, accuracy is not
        splits[f"held-out rows ({argument('heldout_size')})"] = task.heldout
    for name, examples in splits.items():
        values = np.unique(examples.labels)
        if len(values) < 2:
            only = values[0] if task.is_regression else task.label_names[values[0]]
            raise UserError(
                f"task {task.name}: wanted at least two different labels in the {name}, "
                f"found {len(examples)} times {only!s}"
            )


def _train(
    source: Checkpoint,
    task: Task,
    recipe: Recipe,
    scratch: Path,
    cka_every: int | None,
    device: str,
) -> None:
    """Write the model and what was measured beside `scratch`, the folder of the Trainer."""
    quiet_libraries()
    from simlab.training.trainer import finished_checkpoint

    steps = recipe.steps(len(task.train))
    _note_long_warmup(recipe, steps)
    checkpoint = finished_checkpoint(scratch, steps)
    tokenizer = load_tokenizer(source)
    if checkpoint is None:
        model = _initial_model(source, task, recipe)
        _run_trainer(model, tokenizer, source, task, recipe, scratch, cka_every, device)
    else:  # interrupted after the last step
        model = load_classifier(ModelSource(source.name, checkpoint))
        freeze_layers(model, parse_freeze(recipe.freeze), source.name)
    if cka_every is not None:
        _write_record(tokenizer, source.name, task, recipe, scratch, cka_every)
    model.to(device)  # type: ignore[arg-type]
    _write_checkpoint(model, tokenizer, source, task, recipe, scratch)


def _note_long_warmup(recipe: Recipe, steps: int) -> None:
    """Say so if training ends before the warm-up does."""
    warmup = recipe.warmup_steps(steps)
    if warmup > steps:
        note(
            f"{argument('warmup', warmup)}: training ends after {steps} steps, before the warm-up "
            f"does, at {steps / warmup:.1%} of the learning rate"
        )


def _initial_model(source: ModelSource, task: Task, recipe: Recipe) -> PreTrainedModel:
    how: dict[str, Any] = {"random_init": recipe.random_init, "head": recipe.head}
    model = load_classifier(source, task, seed=recipe.seed, **how)
    freeze_layers(model, parse_freeze(recipe.freeze), source.name)
    return model


def _run_trainer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: ModelSource,
    task: Task,
    recipe: Recipe,
    folder: Path,
    cka_every: int | None,
    device: str,
) -> None:
    from transformers import set_seed

    from simlab.training.trainer import (
        ResumableTrainer,
        ShowProgress,
        StepTimes,
        UnpaddedTrainer,
        train,
    )

    set_seed(recipe.seed)
    rows = encode_for_head(model, tokenizer, task.train, recipe.max_length)
    alike = reads_padding(model, tokenizer, rows, len(rows))  # any text may meet any other
    if alike:
        require_even_choices(rows)
    for row, label in zip(rows, task.train.labels.tolist(), strict=True):
        row["labels"] = label
    callbacks: list[TrainerCallback] = [StepTimes()]
    if cka_every is not None:
        callback = _cka_callback(tokenizer, task, recipe, cka_every)
        callback.batch_size = 1 if alike else callback.batch_size
        callbacks.append(callback)
    name = "random twin" if recipe.random_init else "fine-tuning"
    with progress(f"{name}, seed {recipe.seed}", recipe.steps(len(rows))) as advance:
        train(
            model,
            tokenizer,
            rows,
            collator(tokenizer, task),
            recipe,
            folder,
            [*callbacks, ShowProgress(advance)],
            UnpaddedTrainer if alike else ResumableTrainer,
            device,
        )


def _cka_callback(
    tokenizer: PreTrainedTokenizerBase, task: Task, recipe: Recipe, every: int
) -> CKACallback:
    from simlab.training.callbacks import CKACallback

    examples = task.heldout.head(min(_MOST_PROBES, len(task.heldout)))
    return CKACallback(encode(tokenizer, examples, recipe.max_length), every=every)


def _write_record(
    tokenizer: PreTrainedTokenizerBase,
    model: str,
    task: Task,
    recipe: Recipe,
    scratch: Path,
    every: int,
) -> None:
    """Write the record of the callback, read from the last checkpoint, as a results file."""
    from simlab.training.trainer import last_state

    callback = _cka_callback(tokenizer, task, recipe, every)
    callback.take_up(last_state(scratch)["log_history"])
    label = f"FT[{recipe.seed}]"
    base = None if recipe.random_init else model
    about = {"task": task.name, "label": label, "seed": recipe.seed, "base": base}
    callback.write(scratch.parent / CKA_RESULTS, **about)


def _write_checkpoint(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: Checkpoint,
    task: Task,
    recipe: Recipe,
    scratch: Path,
) -> None:
    from simlab.training.trainer import last_state, median_step_seconds

    logits = predict_logits(model, tokenizer, task.heldout, recipe.max_length)
    state = last_state(scratch)
    trained, every = parameter_counts(model)
    predictions = predictions_of(logits, task)
    scores = task.scores(predictions, task.heldout.labels)
    evaluation = {
        "model": source.name,
        "base": source.base_name,
        "task": task.name,
        "metric": task.metric,
        "value": scores[task.metric],
        "scores": scores,
        **_over_examples(scores, predictions, task),
        "n": len(task.heldout),
        "splits": split_records(None if recipe.random_init else source, task),
        "recipe": asdict(recipe),
        "parameters": every,
        "trained_parameters": trained,
        "seconds_per_step": median_step_seconds(state),
    }
    folder = scratch.parent
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_json(folder / EVALUATION, evaluation)


def _over_examples(
    scores: Mapping[str, float], predictions: np.ndarray, task: Task
) -> dict[str, dict[str, Any]]:
    """Return the bounds and draws of every metric over the held-out examples, if it is defined."""
    bounds, draws = {}, {}
    for metric, value in scores.items():
        columns = metric_columns(
            metric, value, predictions, task.heldout.labels, task.heldout.questions
        )
        if math.isfinite(columns["low"]):
            bounds[metric] = [columns["low"], columns["high"]]
            draws[metric] = columns["draws"]
    return {"intervals": bounds, "draws": draws}
