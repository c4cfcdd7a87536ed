"""Fine-tune a model with the Hugging Face Trainer: seeded, resumable, atomic.

Layers may be frozen (Wu et al. 2020, section 6 and appendix D). ``bottom:K`` freezes everything on
which the output of layer K depends: the first K layers, the embeddings, and parameters that the
layers share (relative positions of MPNet and DeBERTa). So the hidden states up to layer K stay as
in the initial model. The paper does not say whether it froze the embeddings, but it must have: it
reports that freezing the bottom six of twelve layers saves more than half of the backpropagation,
and gradients of the embeddings would have to pass through all twelve layers. ``top:K`` freezes the
last K layers and nothing else. The head, pooler included, is always trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from simlab.bounds import Count, bounded, check_values
from simlab.errors import UserError, argument, first_line
from simlab.models.batches import collator, reads_padding, require_even_choices
from simlab.models.checkpoint import EVALUATION, Checkpoint, load_task_of, split_records
from simlab.models.evaluate import heldout_columns, predict_logits
from simlab.models.load import load_classifier, load_config, load_tokenizer
from simlab.models.place import AUTO, check_device, place
from simlab.models.recognise import architecture_of
from simlab.models.sources import ModelSource
from simlab.models.states import layer_states
from simlab.models.tokens import encode, encode_for_head
from simlab.store.console import note, progress
from simlab.store.files import write_json
from simlab.store.jobs import Outcome, run_job
from simlab.store.runtime import quiet_libraries
from simlab.tasks.frames import require_varied
from simlab.training.recipes import BOTTOM, QUICK, Freeze, Recipe, make_recipe, parse_freeze

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

    from simlab.models.architectures import Architecture
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
    check_device(device)
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
            _FineTuning(source, task, recipe, scratch, cka_every, computes).run()

    return run_job(Path(out), inputs, make, replace=overwrite, resumable=True)


def require_trainable(
    source: ModelSource,
    recipe: str | Recipe,
    changes: Mapping[str, Any],
    freezes: Sequence[str] = (),
) -> None:
    """Check recipe and frozen layers before the task is read, by the model's configuration alone.

    `freezes` are ways of freezing besides the recipe's own. A model of an unknown architecture is
    checked when its weights are loaded.
    """
    named = [make_recipe(recipe, "", changes).freeze, *freezes]
    wanted = [freeze for freeze in map(parse_freeze, named) if freeze is not None]
    if not wanted:
        return
    config = load_config(source)
    try:
        architecture = architecture_of(config)
    except UserError:
        return
    for freeze in wanted:
        _check(freeze, source.name, architecture, getattr(config, architecture.count))


def require_varied_labels(task: Task) -> None:
    """Check that the training labels differ, and the held-out labels of a regression as well."""
    # Multiple choice can be learnt even if the right choice has the same number in every row.
    splits = (
        {} if task.is_multiple_choice else {f"training rows ({argument('train_size')})": task.train}
    )
    if task.is_regression:  # a correlation is undefined if all labels are the same, accuracy is not
        splits[f"held-out rows ({argument('heldout_size')})"] = task.heldout
    for name, examples in splits.items():
        require_varied(examples.labels, f"task {task.name}, {name}")


@dataclass(frozen=True)
class _FineTuning:
    """A fine-tuning, whose Trainer writes into `scratch`, a folder within the checkpoint's."""

    source: Checkpoint
    task: Task
    recipe: Recipe
    scratch: Path
    cka_every: int | None
    device: str

    def run(self) -> None:
        """Train, or take up the end of a training that was interrupted after the last step."""
        quiet_libraries()
        from simlab.training.trainer import finished_checkpoint

        recipe, source, folder = self.recipe, self.source, self.scratch.parent
        steps = recipe.steps(len(self.task.train))
        warmup = recipe.warmup_steps(steps)
        if warmup > steps:
            note(
                f"{argument('warmup', warmup)}: training ends after {steps} steps, before the "
                f"warm-up does, at {steps / warmup:.1%} of the learning rate"
            )
        checkpoint = finished_checkpoint(self.scratch, steps)
        tokenizer = load_tokenizer(source)
        if checkpoint is None:
            how: dict[str, Any] = {"random_init": recipe.random_init, "head": recipe.head}
            model = load_classifier(source, self.task, seed=recipe.seed, **how)
        else:
            model = load_classifier(ModelSource(source.name, checkpoint))
        freeze_layers(model, parse_freeze(recipe.freeze), source.name)
        if checkpoint is None:
            self._train(model, tokenizer, steps)
        if self.cka_every is not None:
            self._write_cka(tokenizer, self.cka_every)
        model.to(self.device)  # type: ignore[arg-type]
        evaluation = self._evaluation(model, tokenizer)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        write_json(folder / EVALUATION, evaluation)

    def _train(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, steps: int
    ) -> None:
        from transformers import set_seed

        from simlab.training.trainer import (
            ResumableTrainer,
            ShowProgress,
            StepTimes,
            UnpaddedTrainer,
            train,
        )

        task, recipe = self.task, self.recipe
        set_seed(recipe.seed)
        rows = encode_for_head(model, tokenizer, task.train, recipe.max_length)
        alike = reads_padding(model, tokenizer, rows, len(rows))  # any text may meet any other
        if alike:
            require_even_choices(rows)
        for row, label in zip(rows, task.train.labels.tolist(), strict=True):
            row["labels"] = label
        callbacks: list[TrainerCallback] = [StepTimes()]
        if self.cka_every is not None:
            callback = self._cka(tokenizer, self.cka_every)
            callback.batch_size = 1 if alike else callback.batch_size
            callbacks.append(callback)
        kind = UnpaddedTrainer if alike else ResumableTrainer
        name = "random twin" if recipe.random_init else "fine-tuning"
        with progress(f"{name}, seed {recipe.seed}", steps) as advance:
            callbacks.append(ShowProgress(advance))
            given = (model, tokenizer, rows, collator(tokenizer, task))
            try:
                train(*given, recipe, self.scratch, callbacks, kind, self.device)
            except ValueError as error:  # a model may train on other lengths than it reads
                raise UserError(
                    f"model of type {model.config.model_type!r}: wanted a model that trains on "
                    f"these texts, found: {first_line(error)}"
                ) from error

    def _cka(self, tokenizer: PreTrainedTokenizerBase, every: int) -> CKACallback:
        from simlab.training.callbacks import CKACallback

        examples = self.task.heldout.head(min(_MOST_PROBES, len(self.task.heldout)))
        return CKACallback(encode(tokenizer, examples, self.recipe.max_length), every=every)

    def _write_cka(self, tokenizer: PreTrainedTokenizerBase, every: int) -> None:
        """Write the record of the callback, read from the last checkpoint, as a results file."""
        from simlab.training.trainer import last_state

        callback = self._cka(tokenizer, every)
        callback.take_up(last_state(self.scratch)["log_history"])
        callback.write(
            self.scratch.parent / CKA_RESULTS,
            task=self.task.name,
            label=f"FT[{self.recipe.seed}]",
            seed=self.recipe.seed,
            base=None if self.recipe.random_init else self.source.name,
        )

    def _evaluation(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
    ) -> dict[str, Any]:
        """Return what `Checkpoint.evaluation` reads."""
        from simlab.training.trainer import last_state, median_step_seconds

        source, task, recipe = self.source, self.task, self.recipe
        logits = predict_logits(model, tokenizer, task.heldout, recipe.max_length)
        trained, every = parameter_counts(model)
        columns = heldout_columns(logits, task)
        scores = {one["measure"]: one["value"] for one in columns}
        bounded = [one for one in columns if math.isfinite(one["low"])]
        return {
            "model": source.name,
            "base": source.base_name,
            "task": task.name,
            "metric": task.metric,
            "value": scores[task.metric],
            "scores": scores,
            "intervals": {one["measure"]: [one["low"], one["high"]] for one in bounded},
            "draws": {one["measure"]: one["draws"] for one in bounded},
            "n": len(task.heldout),
            "splits": split_records(None if recipe.random_init else source, task),
            "recipe": asdict(recipe),
            "parameters": every,
            "trained_parameters": trained,
            "seconds_per_step": median_step_seconds(last_state(self.scratch)),
        }


def freeze_layers(model: PreTrainedModel, freeze: Freeze | None, name: str) -> None:
    """Freeze the parameters of `model` that belong to the layers in `freeze`."""
    if freeze is None:
        return
    architecture = architecture_of(model)
    layers = architecture.layers(model)
    _check(freeze, name, architecture, len(layers))
    if freeze.side == BOTTOM:
        frozen = _behind_layer(model, freeze.count)
    else:
        frozen = [p for layer in layers[-freeze.count :] for p in layer.parameters()]
    for parameter in frozen:
        parameter.requires_grad = False


def _check(freeze: Freeze, name: str, architecture: Architecture, layers: int) -> None:
    option = f"{argument('freeze', f'{freeze.side}:{freeze.count}')}: model {name}"
    if freeze.count > layers:
        raise UserError(f"{option} wanted at least {freeze.count} layers, found {layers}")
    if architecture.shared:
        raise UserError(
            f"{option} wanted layers with weights of their own, found architecture "
            f"{architecture.name}, whose layers share their weights"
        )


def parameter_counts(model: PreTrainedModel) -> tuple[int, int]:
    """Return the number of trained parameters, and the number of all parameters."""
    counts = [(p.numel() if p.requires_grad else 0, p.numel()) for p in model.parameters()]
    trained, every = (sum(column) for column in zip(*counts, strict=True))
    return trained, every


def _behind_layer(model: PreTrainedModel, layer: int) -> list[nn.Parameter]:
    """Return the parameters on which the output of layer `layer`, counted from 1, depends.

    They are the parameters with a gradient, so no names of embeddings need to be known.
    """
    import torch

    parameters = list(model.base_model.parameters())
    ids = torch.zeros(1, 2, dtype=torch.long, device=model.device)
    encoder = cast("PreTrainedModel", model.base_model)
    states = layer_states(encoder, {"input_ids": ids})[layer]
    gradients = torch.autograd.grad(states.sum(), parameters, allow_unused=True)
    return [p for p, grad in zip(parameters, gradients, strict=True) if grad is not None]
