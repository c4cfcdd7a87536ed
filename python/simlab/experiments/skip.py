"""Skip layers (Phang et al. 2021, section 4.1): leave out every contiguous span, without training.

Span [i, j) leaves out layers i + 1 to j: the output of layer i (0 is the embedding output) takes
the place of the output of layer j. A model of L layers has L (L + 1) / 2 spans besides the empty
span, which stands for the whole model.

A forward pass for each span would run

    L + sum over lengths k = 1..L of (L + 1 - k) (L - k)  =  L + (L - 1) L (L + 1) / 3

layers. But up to layer i, a model without span [i, j) has the states of the whole model, so only
the layers after layer j have to run. In one sweep, layer l (from 0) runs on the state of the whole
model and on the states of the l (l + 1) / 2 spans that end at or before this layer. This is

    sum over l = 0..L-1 of 1 + l (l + 1) / 2  =  L + (L - 1) L (L + 1) / 6

runs of a layer on a batch: 41 instead of 76 for 6 layers, 298 instead of 584 for 12. The model's
own forward pass gives the logits of the empty span, so they equal the model's bit for bit. The
logits of other spans differ from a model without the layers by rounding alone, because
their matrix products have more rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simlab.bounds import Bytes, Length, bounded
from simlab.errors import UserError, argument
from simlab.experiments.subject import Subject
from simlab.models.architectures import text_config
from simlab.models.batches import batches
from simlab.models.chain import LayerChain
from simlab.models.evaluate import EVALUATION_BATCH, heldout_columns
from simlab.models.fitting import require_head
from simlab.models.load import load_classifier, load_tokenizer
from simlab.models.padding import encode_for_head
from simlab.models.recognise import architecture_of, reads_padding
from simlab.models.sources import ModelSource
from simlab.store.console import progress
from simlab.store.jobs import Outcome
from simlab.store.results import SKIPPING, ResultRow, Side, ensure_results
from simlab.store.runtime import best_device

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from simlab.tasks import Task, TaskOptions

Span = tuple[int, int]
EMPTY: Span = (0, 0)

# With more rows a matrix product is not faster, and the temporaries outgrow the caches (on a CPU,
# the fresh pages that every call touches would cost a quarter of the time).
TOKENS_PER_CALL = {"cpu": 4096, "cuda": 65536}
# Memory of a layer while it runs, as a multiple of its input: four times the width before and after
# the activation (six with a gate), queries, keys, values, their products, residuals.
_LAYER_STATES = 24
_FLOAT32_BYTES = 4


def spans(layers: int) -> list[Span]:
    """Return the empty span and all spans [i, j) with 0 <= i < j <= `layers`."""
    return [EMPTY, *((i, j) for i in range(layers) for j in range(i + 1, layers + 1))]


def sweep_evaluations(layers: int) -> int:
    """Return how many runs of a layer on a batch `skip_logits` takes (see module docstring)."""
    return layers + (layers - 1) * layers * (layers + 1) // 6


def loop_evaluations(layers: int) -> int:
    """Return how many runs of a layer a forward pass for every span would take."""
    return layers + (layers - 1) * layers * (layers + 1) // 3


def skip_logits(chain: LayerChain, states_per_call: int) -> dict[Span, torch.Tensor]:
    """Compute the logits of a model without each span, in one sweep over its layers.

    Parameters
    ----------
    chain
        The layers of a model on one batch.
    states_per_call
        Most states, each of the size of the batch, that a layer takes in one call.

    Returns
    -------
    dict
        For each of `spans`, logits ``[b, labels]``. The logits of the empty span are the model's
        own.
    """
    layers = len(chain.layers)
    running: dict[Span, torch.Tensor] = {}
    for layer in range(layers):
        running |= {(start, layer): chain.states[start] for start in range(layer)}
        for part in _parts(list(running), states_per_call):
            states = chain.run(layer, [running[span] for span in part])
            running.update(zip(part, states, strict=True))
    running |= {(start, layers): chain.states[start] for start in range(layers)}
    logits = {EMPTY: chain.logits}
    for part in _parts(list(running), states_per_call):
        logits.update(zip(part, chain.finish([running.pop(s) for s in part]), strict=True))
    return logits


@dataclass(frozen=True)
class SkipPlan:
    """The number of examples in a sweep, and of their states in one call of a layer."""

    examples: int
    states: int


def plan_skip(
    model: PreTrainedModel, layers: int, batch: Mapping[str, torch.Tensor], max_memory: int
) -> SkipPlan:
    """Return the largest sweep whose states and temporaries fit into `max_memory` bytes.

    Raises
    ------
    UserError
        A sweep of one example with one state per call does not fit.
    """
    ids = batch["input_ids"]
    tokens = ids[0].numel()
    config = text_config(model.config)
    state = tokens * config.hidden_size * _FLOAT32_BYTES
    scores = ids.shape[-1] * tokens * config.num_attention_heads * _FLOAT32_BYTES
    # States of the spans and of the whole model, and a quarter more for gaps of the allocator.
    per_example = (layers * (layers + 1) // 2 + layers + 1) * state * 5 // 4
    per_call = (_LAYER_STATES * state) + 3 * scores
    if per_example + per_call > max_memory:
        raise UserError(
            f"{argument('max_memory')}: wanted at least {per_example + per_call:,} bytes for one "
            f"example of {tokens} tokens in {layers} layers, found {max_memory:,}"
        )
    examples = min(len(ids), max_memory // (per_example + per_call))
    room = (max_memory - examples * per_example) // (examples * per_call)
    useful = max(1, TOKENS_PER_CALL[ids.device.type] // (examples * tokens))
    return SkipPlan(examples, int(min(room, useful, max(1, layers * (layers - 1) // 2))))


def all_skip_logits(
    source: ModelSource,
    task: Task,
    max_length: int,
    *,
    max_memory: int | None = None,
    batch_size: int = EVALUATION_BATCH,
    description: str = "skipping",
) -> dict[Span, np.ndarray]:
    """Compute the logits of every held-out example without each span of layers.

    Parameters
    ----------
    source
        A fine-tuned checkpoint.
    max_memory
        Bytes for hidden states and temporaries; None is a quarter of `simcore.free_memory`.
        Results do not depend on `max_memory`, except for rounding.

    Returns
    -------
    dict
        For each of `spans`, logits ``[n, labels]``, float32.

    Raises
    ------
    UserError
        The layers cannot be skipped, the head does not fit the task, or there is too little memory.
    """
    import torch

    from simcore import free_memory

    tokenizer, model = load_tokenizer(source), load_classifier(source)
    require_head(model, source, task)
    device = best_device()
    model.to(device)  # type: ignore[arg-type]
    layers = len(architecture_of(model).layers(model))
    encoded = encode_for_head(model, tokenizer, task.heldout, max_length)
    # For multiple choice, the number of choices.
    shape = (len(encoded), cast(int, model.config.num_labels))
    logits = {span: np.empty(shape, np.float32) for span in spans(layers)}
    limit = free_memory(device) // 4 if max_memory is None else max_memory
    with torch.inference_mode(), progress(description, len(encoded)) as advance:
        alike = reads_padding(model)
        for rows, batch in batches(tokenizer, encoded, batch_size, device, alike=alike):
            plan = plan_skip(model, layers, batch, limit)
            for part in _parts(range(len(rows)), plan.examples):
                cut = slice(part[0], part[-1] + 1)
                chosen = {name: value[cut] for name, value in batch.items()}
                chain = LayerChain(model, chosen, source.name)
                for span, of_span in skip_logits(chain, plan.states).items():
                    logits[span][rows[cut]] = of_span.cpu().numpy()
            advance(len(rows))
    return logits


def skip_rows(
    source: ModelSource,
    task: Task,
    max_length: int,
    model: Side,
    *,
    max_memory: int | None = None,
) -> list[ResultRow]:
    """Return the held-out metrics of fine-tuned model `source` without each span of its layers.

    Parameters
    ----------
    model
        How rows name the model.

    Returns
    -------
    list of ResultRow
        A row for each span and metric of the task. `layer_x` is i and `layer_y` is j of span
        [i, j); both are 0 for the model itself.
    """
    by_span = all_skip_logits(
        source, task, max_length, max_memory=max_memory, description=f"skipping in {model.label}"
    )
    return [
        ResultRow(
            experiment=SKIPPING,
            **model.columns(),
            layer_x=start,
            layer_y=end,
            n=len(task.heldout),
            task=task.name,
            **columns,
        )
        for (start, end), logits in by_span.items()
        for columns in heldout_columns(logits, task)
    ]


@bounded
def skip(
    checkpoint: str | Path | ModelSource,
    task: str | Path | Task,
    out: str | Path,
    *,
    max_length: Length | None = None,
    label: str | None = None,
    seed: int | None = None,
    max_memory: Bytes | None = None,
    task_options: TaskOptions | None = None,
    overwrite: bool = False,
) -> Outcome:
    """Leave out every contiguous span of layers of a fine-tuned model, and write the metrics.

    The results file has the held-out metrics without each span (`skip_rows`); nothing is trained.

    Parameters
    ----------
    checkpoint
        A folder that `finetune` made; in Python also an open `Checkpoint`.
    task
        A name of `simcore tasks` (`rt`, `imdb`, `stsb`, `quartz` are offline), NAME:FOLDER for a
        folder with its files, a csv/tsv/json/jsonl/parquet file, or ``hub:NAME[:CONFIG]``; in
        Python also a task that `load_task` gave.
    out
        The results file (.parquet) to write.
    max_length
        Tokens kept per example; None is as in the fine-tuning of the model.
    label
        Name of the model in results and figures.
    seed
        Seed of the fine-tuning, to store.
    max_memory
        Bytes for hidden states and temporaries, such as 1e9; None is 1/4 of the free memory.
    task_options
        Columns and split of the task; the default split is the split of the fine-tuning.
    overwrite
        Make `out` anew if it was made from other inputs; if False, raise an error instead.

    Returns
    -------
    Outcome
        Path of the results file, and whether it was there before; `read_results` reads it.

    Raises
    ------
    UserError
        `checkpoint` is not a fine-tuned checkpoint, its head does not fit the task, there is too
        little memory, or `out` has other content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, finetune, read_results, skip
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = finetune("minilm", "rt", "runs/ft-1", seed=1, max_steps=2, task_options=few)
    >>> step = skip("runs/ft-1", "rt", "runs/results/skipping.parquet")
    >>> len(read_results(step.path))  # 21 spans of 6 layers, and the whole model
    22
    """
    subject = Subject(checkpoint, task, task_options, max_length)
    source = subject.source
    model = source.side(label or source.path.name, seed)
    inputs: dict[str, Any] = {
        "step": "skip",
        **subject.inputs,
        "named": vars(model),
    }

    def make() -> list[ResultRow]:
        limit = None if max_memory is None else int(max_memory)
        return skip_rows(source, subject.task, subject.length, model, max_memory=limit)

    return ensure_results(Path(out), inputs, make, replace=overwrite)


def _parts(items: Sequence[Any], size: int) -> list[Any]:
    return [items[start : start + size] for start in range(0, len(items), size)]
