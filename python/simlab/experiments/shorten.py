"""Shorten models, as folders for plain ``from_pretrained``.

`shorten` writes the first layers of a fine-tuned model and a head; `leave_out` writes a decoder
without a span of layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.bounds import Count, Length, bounded
from simlab.errors import UserError, argument
from simlab.experiments.truncate import (
    Subject,
    Truncated,
    TruncationOptions,
    cut_model,
    tuning_inputs,
)
from simlab.models.checkpoint import EVALUATION, Checkpoint, length_of, load_examples
from simlab.models.evaluate import (
    EVALUATION_BATCH,
    heldout_metrics,
    load_decoder,
    perplexity,
    predict_logits,
)
from simlab.models.load import load_config, load_scored, load_tokenizer
from simlab.models.place import AUTO, check_device, place
from simlab.models.recognise import architecture_of
from simlab.models.sources import ModelSource
from simlab.store.files import write_json
from simlab.store.jobs import Outcome, run_job

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from simlab.tasks import Task, TaskOptions

_ROUNDING = 1e-3  # of the largest output
LEFT_OUT = "left-out.json"
_TOKENS = 5  # of a text that shows whether layers compute alike in other places


def keep_layers(
    model: PreTrainedModel, kept: Sequence[int], *, share: bool = False
) -> PreTrainedModel:
    """Return a copy of `model` with only the layers `kept`, counted from 0, and the same weights.

    With `share`, the copy has the tensors of `model` itself, and takes no memory for weights.
    """
    architecture = architecture_of(model)
    groups = len(set(map(id, architecture.layers(model))))
    if architecture.shared and groups > 1:
        raise UserError(
            f"model of type {model.config.model_type!r}: wanted layers that all share one set of "
            f"weights, found {groups} groups of layers, which a shorter model would group otherwise"
        )
    tensors = [*model.parameters(), *model.buffers()] if share else []
    shorter = deepcopy(model, {id(tensor): tensor for tensor in tensors})
    if not architecture.shared:
        path, _, name = architecture.layers_path.rpartition(".")
        holder = shorter.base_model.get_submodule(path)
        layers = getattr(holder, name)
        setattr(holder, name, type(layers)([layers[layer] for layer in kept]))
    config = architecture.keep_layers(model.config, kept)
    for module in shorter.modules():  # many modules hold the configuration
        if hasattr(module, "config"):
            module.config = config  # type: ignore[assignment]
    return shorter


def shorten(
    checkpoint: str | Path | ModelSource,
    task: str | Path | Task,
    layers: int,
    out: str | Path,
    options: TruncationOptions | None = None,
    *,
    max_length: int | None = None,
    device: str = AUTO,
    task_options: TaskOptions | None = None,
    overwrite: bool = False,
    **changes: Any,
) -> Outcome:
    """Write the first layers of a fine-tuned model and a head, as ``truncate --export`` does.

    Parameters
    ----------
    checkpoint, task_options, overwrite
        As for `truncate`.
    task
        As for `finetune`.
    layers
        Number of layers to keep.
    out
        The checkpoint folder to make; plain ``from_pretrained`` loads it.
    options, **changes
        Options with a single mode, which chooses the head: the fine-tuned model's own head
        (``untuned``, the default), or a head trained for the last kept layer; keywords replace
        fields of `TruncationOptions`.
    max_length
        Tokens kept per example; None is the length of the fine-tuning.
    device
        As for `leave_out`.

    Returns
    -------
    Outcome
        Path of the folder, and whether it was there before.

    Raises
    ------
    UserError
        There is more than one mode, `layers` is not between 1 and the number of layers, or `out`
        has other content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, finetune, shorten
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = finetune("minilm", "rt", "runs/ft-1", seed=1, max_steps=2, task_options=few)
    >>> shorten("runs/ft-1", "rt", 4, "runs/ft-1-short").path
    PosixPath('runs/ft-1-short')
    """
    options = (options or TruncationOptions()).changed(changes)
    mode = _only_mode(options)
    check_device(device)
    subject = Subject(checkpoint, task, task_options, max_length)
    count = load_config(subject.source).num_hidden_layers
    if not 1 <= layers <= count:
        raise UserError(f"{argument('layers', layers)}: wanted 1 to {count} layers, found {layers}")
    inputs = {
        "step": "export",
        **subject.inputs,
        "layers": layers,
        "mode": mode,
        **tuning_inputs(subject.source, subject.task, options),
    }

    def make(partial: Path) -> None:
        source, task, length = subject.source, subject.task, subject.length
        how: dict[str, Any] = {"device": device, "in_blocks": False}
        truncated = cut_model(source, task, length, mode, options, **how)
        shorter = shortened(truncated, layers)
        logits = predict_logits(shorter, truncated.tokenizer, task.heldout, length)
        shorter.save_pretrained(partial)
        truncated.tokenizer.save_pretrained(partial)
        first = task.heldout.head(min(EVALUATION_BATCH, len(task.heldout)))
        written = ModelSource(str(partial), partial)
        model = load_scored(written, replace(task, heldout=first))
        title = "checking the export"
        answers = predict_logits(model, load_tokenizer(written), first, length, title)
        apart = np.abs(answers - logits[: len(answers)]).max()
        _require_alike(model, float(apart), float(np.abs(logits).max()))
        scores = heldout_metrics(logits, task)
        evaluation = {
            "model": source.name,
            "task": task.name,
            "metric": task.metric,
            "value": scores[task.metric],
            "scores": scores,
            "n": len(task.heldout),
            "splits": source.splits,
            "layers": layers,
            "mode": mode,
            # Heads were trained with the length kept here; without heads nothing was trained.
            "max_length": length if truncated.heads else source.length or length,
        }
        write_json(partial / EVALUATION, evaluation)

    return run_job(Path(out), inputs, make, replace=overwrite)


def _only_mode(options: TruncationOptions) -> str:
    if len(options.modes) != 1:
        raise UserError(
            f"{argument('layers')}: wanted one {argument('modes')}, found "
            f"{', '.join(options.modes)}"
        )
    return options.modes[0]


def shortened(truncated: Truncated, layers: int) -> PreTrainedModel:
    """Return a model of the first `layers` layers, with the head trained for them, if any."""
    import torch

    model = keep_layers(truncated.model, range(layers))
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, every in (truncated.heads or {}).items():
            parameters[name].copy_(every[layers])
    return model


@bounded
def leave_out(
    model: str | Path | ModelSource,
    task: str | Path | Task,
    out: str | Path,
    *,
    start: int,
    end: int,
    split: str = "heldout",
    limit: Count | None = None,
    max_length: Length | None = None,
    batch_size: Count = 32,
    device: str = AUTO,
    task_options: TaskOptions | None = None,
    overwrite: bool = False,
) -> Outcome:
    """Write a decoder without layers `start` + 1 to `end`, and the perplexity of both.

    Parameters
    ----------
    model
        A local folder or a model of the hub: a decoder with its head for words.
    task, split, limit, max_length, batch_size, task_options
        The texts of the perplexity, as for `influence`.
    out
        The model folder to make, in the precision of the model's files; plain ``from_pretrained``
        loads it. Its ``left-out.json`` has the perplexities.
    start, end
        The span: the output of layer `start` (0 is the embedding output) takes the place of the
        output of layer `end`.
    device
        Where the model runs: ``cpu``, ``cuda``, ``cuda:1``; ``auto`` is a GPU if there is one.
    overwrite
        As for `truncate`.

    Returns
    -------
    Outcome
        As for `shorten`.

    Raises
    ------
    UserError
        The model is no decoder with a head for words, the span is none of its layers or all of
        them, layers compute otherwise in other places, or `out` has other content and
        `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, leave_out, pretrain
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> size = {"layers": 2, "hidden": 16, "heads": 2, "vocabulary": 500, "objective": "causal"}
    >>> step = pretrain("rt", "runs/decoder", seed=1, max_steps=2, task_options=few, **size)
    >>> leave_out(step.path, "rt", "runs/shorter", start=1, end=2, task_options=few).path
    PosixPath('runs/shorter')
    """
    check_device(device)
    source = Checkpoint.open(model)
    name, examples = load_examples([source], task, split, task_options, limit)
    length = length_of([source], max_length)
    inputs: dict[str, Any] = {
        "step": "leave-out",
        "model": source.fingerprint,
        "span": [start, end],
        "examples": examples.text_fingerprint,
        "task": name,
        "max_length": length,
    }

    def make(partial: Path) -> None:
        computes = place(source, "auto", device, in_blocks=False)
        tokenizer = load_tokenizer(source)

        def score(decoder: PreTrainedModel, which: str) -> tuple[float, int]:
            title = f"perplexity of the {which} model"
            return perplexity(decoder, tokenizer, examples, length, batch_size, title)

        whole = load_decoder(source)
        layers = len(architecture_of(whole).layers(whole))
        _require_span(start, end, layers)
        whole.to(computes)  # type: ignore[arg-type]
        perplexities = {"whole": score(whole, "whole")[0]}
        shorter = keep_layers(whole, [*range(start), *range(end, layers)], share=True)
        wanted = _logits(shorter)
        shorter.config.use_cache = getattr(whole.config, "use_cache", True)
        shorter.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        del whole, shorter  # the memory is for the written model
        # A configuration may decide by a layer's number how the layer computes (every fourth layer
        # without rotary positions, a scale by depth), and layers after the span have other numbers.
        called = f"{source.name} without layers {start + 1} to {end}"
        written = load_decoder(ModelSource(called, partial))
        written.to(computes)  # type: ignore[arg-type]
        apart = float((_logits(written) - wanted).abs().max())
        _require_alike(written, apart, float(wanted.abs().max()))
        perplexities["without"], tokens = score(written, "shorter")
        about = {"model": source.name, "span": [start, end], "task": name, "texts": len(examples)}
        results = {"layers": layers, "perplexity": perplexities, "tokens": tokens}
        write_json(partial / LEFT_OUT, {**about, **results})

    return run_job(Path(out), inputs, make, replace=overwrite)


def _require_span(start: int, end: int, layers: int) -> None:
    if not 0 <= start < end <= layers or end - start == layers:
        raise UserError(
            f"{argument('start', start)}: wanted a span within the {layers} layers, and not "
            f"all of them, found layers {start + 1} to {end}"
        )


def _logits(decoder: PreTrainedModel) -> torch.Tensor:
    """Return the logits of a decoder on a few tokens, which show whether layers compute alike."""
    import torch

    tokens = torch.arange(_TOKENS, device=decoder.device)[None]
    with torch.inference_mode():
        return decoder(input_ids=tokens, use_cache=False).logits.float()


def _require_alike(model: PreTrainedModel, apart: float, largest: float) -> None:
    """Raise UserError unless the outputs of a made model are those of the layers it is made of."""
    if not apart <= _ROUNDING * largest:
        raise UserError(
            f"model of type {model.config.model_type!r}: wanted layers that compute alike at every "
            f"position, found outputs that differ by {apart:.3g} from those of the same layers in "
            "their old places"
        )
