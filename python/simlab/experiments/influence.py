"""Block influence (Men et al. 2024): how much every span of layers turns the hidden states.

The influence of span [i, j), which stands for layers i + 1 to j, is

    1 - mean over tokens t of cos(x_i[t], x_j[t])

where x_i is the output of layer i (0 is the embedding output), and x_L the output of the last layer
before a final norm. Spans of one layer are the blocks of the paper; a span that hardly turns the
states is one that `skip` may leave out. Nothing is trained and no label is read, so that any model
will do, a decoder without a head too.

The interval of a span is ``value -+ 1.96 s``, where s is the standard error of a ratio estimator:
the sum of the cosines of all texts to the sum of their numbers of tokens.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.bounds import Count, Length, bounded
from simlab.errors import UserError, argument, require_known
from simlab.experiments.skip import spans
from simlab.models.batches import batches, reads_padding
from simlab.models.checkpoint import Checkpoint, length_of, load_examples
from simlab.models.load import load_encoder, load_tokenizer
from simlab.models.place import AUTO, PRECISIONS, check_device, moved, place, scratch_beside
from simlab.models.sources import ModelSource, step_label
from simlab.models.states import layer_states
from simlab.models.tokens import encode
from simlab.results.reading import read_results
from simlab.results.results import BLOCK_INFLUENCE, INFLUENCE, ResultRow, ensure_results
from simlab.store.console import progress
from simlab.store.jobs import Outcome

if TYPE_CHECKING:
    from simlab.tasks import Examples, Task, TaskOptions

BATCH_SIZE = 32


@bounded
def influence(
    model: str | Path | ModelSource,
    task: str | Path | Task,
    out: str | Path,
    *,
    split: str = "heldout",
    limit: Count | None = None,
    max_length: Length | None = None,
    batch_size: Count = BATCH_SIZE,
    random_init_seed: int | None = None,
    label: str | None = None,
    seed: int | None = None,
    step: int | None = None,
    weights: str = PRECISIONS[0],
    device: str = AUTO,
    task_options: TaskOptions | None = None,
    overwrite: bool = False,
) -> Outcome:
    """Write the block influence of every contiguous span of layers of a model.

    Parameters
    ----------
    model
        ``minilm`` (offline), a local folder, or a model of the hub: an encoder or a decoder, with a
        head or without one.
    task
        As for `finetune`. With `split` ``all`` also a ``.txt`` file with a sentence on each line,
        and tables without labels.
    out, label, overwrite
        As for `truncate`.
    split
        Split: ``heldout``, ``train``, or ``all``: every text of the task.
    limit
        Number of examples, from the first; None is all.
    max_length
        Tokens kept per example; None is as in the fine-tuning of the model, else 64.
    batch_size
        Examples per forward pass.
    random_init_seed
        Draw random weights with this seed (a random twin), in place of the weights of the model.
    seed
        Seed to store: of the fine-tuning, or of the weights of a random twin.
    step
        Step of training to store.
    weights
        Precision in which the model computes: ``float32``, ``bfloat16`` or ``float16`` for half the
        memory, or ``auto``, as in the model's files.
    device
        Where the model runs: ``cpu``, ``cuda``, ``cuda:1``; ``auto`` is a GPU if there is one;
        ``spread``: all GPUs, then memory, then the disk; or ``offload``, for a model that is larger
        than memory: its blocks are read from the disk for each batch.
    task_options
        Columns and split of the task; the default split of a fine-tuned model is as in its
        fine-tuning.

    Returns
    -------
    Outcome
        The results file: a row for each contiguous span of layers, with a 95 % interval.

    Raises
    ------
    UserError
        The model, the task or the device is unknown, the layers differ in width, or `out` has other
        content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, influence, read_results
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = influence("minilm", "rt", "runs/results/influence.parquet", task_options=few)
    >>> len(read_results(step.path))  # 21 spans of 6 layers
    21
    """
    require_known("weights", weights, PRECISIONS)
    check_device(device, spreads=True, in_blocks=True)
    source = Checkpoint.open(model).at(step)
    name, examples = load_examples([source], task, split, task_options, limit)
    examples = examples.each_choice()
    length = length_of([source], max_length)
    # `skip` and `truncate` call a checkpoint by its folder.
    called = Path(source.name).name if step is None else step_label(source.name, step)
    side = source.side(label or called, seed, random_init_seed)
    inputs: dict[str, Any] = {
        "step": "influence",
        "model": source.fingerprint,
        "random_init_seed": random_init_seed,
        "examples": examples.text_fingerprint,
        "task": name,
        "max_length": length,
        "named": vars(side),
        **({} if weights == PRECISIONS[0] else {"weights": weights}),
    }

    def make() -> list[ResultRow]:
        how: dict[str, Any] = {"weights": weights, "device": device}
        how |= {"random_init_seed": random_init_seed, "label": side.label}
        with scratch_beside(Path(out)) as scratch:
            sums, tokens = cosine_sums(source, examples, length, batch_size, scratch=scratch, **how)
        return [
            ResultRow(
                experiment=INFLUENCE,
                measure=BLOCK_INFLUENCE,
                **side.columns(),
                layer_x=start,
                layer_y=end,
                n=int(tokens.sum()),
                task=name,
                **_columns(sums[:, start, end], tokens),
            )
            for start, end in spans(sums.shape[1] - 1)[1:]
        ]

    return ensure_results(Path(out), inputs, make, replace=overwrite)


def cosine_sums(
    source: ModelSource,
    examples: Examples,
    max_length: int,
    batch_size: int = BATCH_SIZE,
    random_init_seed: int | None = None,
    label: str = "model",
    *,
    weights: str = PRECISIONS[0],
    device: str = AUTO,
    scratch: Path | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return sums over the tokens of each example of the cosines of every two layers.

    The sums are float64 [n, L + 1, L + 1], and come with the numbers of summed tokens, int64 [n].
    """
    import torch
    from torch.nn.functional import normalize

    tokenizer = load_tokenizer(source)
    computes = place(source, weights, device, random_init=random_init_seed is not None)
    model = load_encoder(source, random_init_seed, weights=weights, device=device, scratch=scratch)
    moved(model, computes)
    encoded = encode(tokenizer, examples, max_length)
    sums: dict[int, np.ndarray] = {}
    with torch.inference_mode(), progress(f"influence in {label}", len(encoded)) as advance:
        alike = reads_padding(model, tokenizer, encoded, batch_size)
        for rows, batch in batches(tokenizer, encoded, batch_size, computes, alike=alike):
            states = layer_states(model, batch)
            if len(widths := {layer.shape[-1]: None for layer in states}) > 1:
                numbers = ", ".join(map(str, widths))
                raise UserError(f"model {source.name}: wanted layers of one width, found {numbers}")
            mask = batch["attention_mask"].bool()
            for number, row in enumerate(rows.tolist()):
                # Longformer fills its window: its states may be longer than the mask.
                kept = [layer[number, : mask.shape[1]][mask[number]] for layer in states]
                # Zero states have no direction, and a cosine of 0: [t, L + 1, p]
                directions = normalize(torch.stack(kept, 1).double(), dim=-1)
                sums[row] = (directions @ directions.transpose(1, 2)).sum(0).cpu().numpy()
            advance(len(rows))
    tokens = np.array([sum(example["attention_mask"]) for example in encoded], np.int64)
    return np.stack([sums[row] for row in range(len(encoded))]), tokens


def _columns(sums: np.ndarray, tokens: np.ndarray) -> dict[str, Any]:
    """Return the influence of a span and the bounds of its interval, from sums of texts [n]."""
    count, total = len(sums), tokens.sum()
    mean = sums.sum() / total
    half = math.nan
    if count > 1:
        spread = np.square(sums - mean * tokens).sum() * count / (count - 1)
        half = NormalDist().inv_cdf(0.975) * math.sqrt(spread) / total
    return {"value": 1 - mean, "low": 1 - mean - half, "high": 1 - mean + half}


def require_span(layers: int, count: int) -> None:
    """Raise UserError unless so many of `count` layers can be left out."""
    if not 1 <= layers < count:
        raise UserError(
            f"{argument('layers', layers)}: wanted 1 to {count - 1} layers to leave out"
        )


def least_span(results: str | Path, layers: int) -> tuple[int, int]:
    """Return which span of so many layers turns the states least, by a file of `influence`."""
    rows = read_results(results)
    require_span(layers, int(rows["layer_y"].max()))
    least = rows.loc[rows.loc[rows["layer_y"] - rows["layer_x"] == layers, "value"].idxmin()]
    return int(least["layer_x"]), int(least["layer_y"])
