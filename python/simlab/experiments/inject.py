"""Layer injection (Ren et al. 2023, section 4.5): a model continues from another's hidden states.

At layer l, ``g(hidden states of A)`` replaces the hidden states of model B, at the classifier token
or at all tokens. The rest of B runs unchanged, and its predictions are scored on the held-out
examples. The maps g are fitted on training examples only.
"""

from __future__ import annotations

import dataclasses
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.experiments.injection_options import InjectOptions
from simlab.experiments.injection_pair import InjectionPair
from simlab.models.sources import ModelSource, resolve
from simlab.store.files import hash_json
from simlab.store.jobs import Outcome
from simlab.store.results import INJECTION, ResultRow, ensure_results
from simlab.tasks.trained_lengths import length_of
from simlab.tasks.trained_splits import load_task_of

if TYPE_CHECKING:
    from simlab.tasks import Task, TaskOptions


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
