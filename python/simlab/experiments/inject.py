"""Layer injection (Ren et al. 2023, section 4.5): a model continues from another's hidden states.

At layer l, ``g(hidden states of A)`` replaces the hidden states of model B, at the classifier token
or at all tokens. The rest of B runs unchanged, and its predictions are scored on the held-out
examples. The maps g are fitted on training examples only.

The results of several pairs are a folder with a file for each pair, so an interrupted call
continues where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.bounds import FromZero, bounded, replaced
from simlab.errors import UserError, argument, require_known
from simlab.experiments.injection import InjectionPair, chosen_layer
from simlab.experiments.options import (
    BOTH,
    DIRECTIONS,
    InjectOptions,
    drawn,
    drawn_pairs,
    file_name,
)
from simlab.models.checkpoint import Checkpoint, length_of, load_task_of
from simlab.models.place import AUTO, check_device
from simlab.models.sources import ModelSource, expand_names, resolve
from simlab.results.results import INJECTION, RANDOM_CLASSIFIER, ResultRow, Side, ensure_results
from simlab.store.console import note
from simlab.store.jobs import Outcome

if TYPE_CHECKING:
    from simlab.tasks import Task, TaskOptions


@dataclass(frozen=True)
class Injected:
    """A model of a pair, and how results name it."""

    source: Checkpoint
    side: Side


@bounded
def inject(
    models: Sequence[str | Path | ModelSource],
    task: str | Path | Task,
    out: str | Path,
    options: InjectOptions | None = None,
    *,
    into: Sequence[str | Path] | None = None,
    pairs: int | None = None,
    pair_seed: FromZero = 0,
    directions: str = BOTH,
    label: Sequence[str] | None = None,
    device: str = AUTO,
    task_options: TaskOptions | None = None,
    overwrite: bool = False,
    **changes: Any,
) -> list[Outcome]:
    """Let model B continue from g(hidden states of A) at one layer, and score B for several maps g.

    If the states do not allow a method, its value is nan, and its ``options`` give the reason under
    ``undefined``. Canonical maps, for example, need rows that differ, but at the embedding output
    the classifier token is the same vector in every text. So it is with too few rows for a method,
    unless `options` name the methods: then it is an error.

    Parameters
    ----------
    models
        Models; B, and every model that another is injected into, is a folder that `finetune` made.
        Two models are A and B. ``{1..3}`` in a name stands for three models.
    task
        As for `finetune`.
    out
        The results file (.parquet) of A and B; with more pairs, a folder with a file for each pair.
    options, **changes
        Layer, tokens and maps; keywords replace fields of `InjectOptions`, such as ``layer=6`` or
        ``methods=("itself", "linear")``.
    into
        Model B: every other model is injected into each of them; by default the models are paired
        with each other.
    pairs
        Pairs of models to draw, the same as `align_study` draws; None is all.
    pair_seed
        Seed of the drawn pairs.
    directions
        Several models in ``both`` directions, or in ``one``: from the model that is given first.
    label
        Name of a model in results and figures, for each model: of `models`, and then of those in
        `into` that are not among `models`.
    device
        Where the model runs: ``cpu``, ``cuda``, ``cuda:1``; ``auto`` is a GPU if there is one.
    task_options
        Columns and split of the task; the default split is as in the first fine-tuning that has
        one, B's first. No model may have been trained on the held-out rows.
    overwrite
        As for `align_study`.

    Returns
    -------
    list of Outcome
        The results file of each pair: a row for each method and metric of the task, scored on the
        held-out rows, which are the same for all pairs.

    Raises
    ------
    UserError
        A method is unknown, a model does not have the layer, B has no head for the task, the models
        split the texts into different tokens (with all tokens), two of several models have the same
        label, the number of labels is wrong, there are too few examples or fewer pairs than
        `pairs`, or `out` has other content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, finetune, inject, read_results
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> for seed in (1, 2):
    ...     place = f"runs/ft-{seed}"
    ...     step = finetune("minilm", "rt", place, seed=seed, max_steps=2, task_options=few)
    >>> methods = ("itself", "identity", "random-labels")
    >>> out = "runs/results/injection.parquet"
    >>> (step,) = inject(["minilm", "runs/ft-1"], "rt", out, layer=3, methods=methods)
    >>> len(read_results(step.path))
    3
    >>> len(inject(["runs/ft-{1..2}"], "rt", "runs/results/pairs", methods=("itself",)))
    2
    """
    options = replaced(options or InjectOptions(), changes)
    options.check()
    check_device(device)
    require_known("directions", directions, DIRECTIONS)
    out, is_one = Path(out), len(models) == 2 and not into and pairs in (None, 1)
    if is_one:
        a, b = _members(models, label)
        chosen, sources = [(a, b)], [b.source, a.source]
    else:
        names = expand_names([str(model) for model in models])
        targets = expand_names([str(model) for model in into or ()])
        drawn_names = _draw(names, targets, pairs, pair_seed, directions)
        if out.suffix == ".parquet" or out.is_file():
            raise UserError(
                f"{argument('out', out)}: wanted a folder for the results of several pairs"
            )
        every = list(dict.fromkeys([*names, *targets]))
        members = dict(zip(every, _members(every, label), strict=True))
        _require_labels([member.side.label for member in members.values()])
        chosen = [(members[a], members[b]) for a, b in drawn_names]
        sources = [members[name].source for name in dict.fromkeys([*targets, *names])]
    task = load_task_of(sources, task, task_options)
    options = replace(options, max_length=length_of(sources, options.max_length))
    files = {}  # what can be refused without a model is refused before the first pair
    for pair in chosen:
        Checkpoint.open_classifier(pair[1].source)
        layer = chosen_layer(pair[0].source, pair[1].source, options.layer)
        words = [INJECTION, task.name, f"layer {layer}", options.tokens]
        words += [member.side.label for member in pair]
        files[out if is_one else out / file_name(words, options.protocol())] = pair
    how: dict[str, Any] = {"device": device, "overwrite": overwrite}
    return [ensure_injection(file, pair, task, options, **how) for file, pair in files.items()]


def _draw(
    names: list[str], targets: list[str], pairs: int | None, seed: int, directions: str
) -> list[tuple[str, str]]:
    """Return the names of A and B of every drawn pair."""
    if len({*names, *targets}) < 2:
        raise UserError(f"inject: wanted two models or more, found {', '.join(names) or 'none'}")
    if targets:
        crossings = [pair for pair in product(names, targets) if pair[0] != pair[1]]
        return [crossings[k] for k in drawn(len(crossings), pairs, seed, "these models")]
    numbers = drawn_pairs(len(names), pairs, seed, directions)
    return [(names[i], names[j]) for i, j in numbers]


def _require_labels(called: list[str]) -> None:
    if len(set(called)) < len(called):
        raise UserError(
            f"{argument('label')}: wanted another label for each model, found {', '.join(called)}"
        )


def ensure_injection(
    path: Path,
    pair: Sequence[Injected],
    task: Task,
    options: InjectOptions,
    *,
    device: str = AUTO,
    overwrite: bool = False,
) -> Outcome:
    """Write the rows of models A and B to `path`, unless `path` was written from the same inputs.

    The `options` name the length of texts.
    """
    a, b = pair
    options = replace(options, layer=chosen_layer(a.source, b.source, options.layer))
    if options.methods is None and options.original is None:
        # The model need not be at hand: a file that is done stays done offline.
        before: dict[str, Any] = {"original": b.source.base}
    else:
        original = _find_original(b.source, options)
        before = {"original": original.fingerprint} if original else {}
    inputs = {
        "step": INJECTION,
        "models": [a.source.fingerprint, b.source.fingerprint],
        "train": task.train.fingerprint,
        "heldout": task.heldout.fingerprint,
        "named": [vars(a.side), vars(b.side)],
        "options": asdict(replace(options, original=None)),
        **before,
        **task.metric_inputs,
    }

    def make() -> list[ResultRow]:
        before_tuning = _find_original(b.source, options)
        models = InjectionPair(a.source, b.source, task, options, before_tuning, device)
        return models.rows(a.side, b.side)

    return ensure_results(path, inputs, make, replace=overwrite)


def _find_original(source: Checkpoint, options: InjectOptions) -> ModelSource | None:
    """Return the model before all fine-tuning of `source`, or None if no method needs it.

    If `options` name no methods, a model that cannot be found is a note and None.
    """
    if options.methods is not None and RANDOM_CLASSIFIER not in options.methods:
        return None
    if options.original is not None:
        return resolve(options.original)
    try:
        original = Checkpoint.open(source.original)
        while original.is_tuned:  # a model that was fine-tuned twice
            original = Checkpoint.open(original.original)
        return original
    except UserError as error:
        if options.methods is not None:
            raise
        note(f"{RANDOM_CLASSIFIER} is left out: {error}")
        return None


def _members(
    models: Sequence[str | Path | ModelSource], labels: Sequence[str] | None
) -> list[Injected]:
    """Return the models and their names in results."""
    sources = [Checkpoint.open(model) for model in models]
    names = [source.name for source in sources]
    if labels is not None and len(labels) != len(names):
        raise UserError(
            f"{argument('label')}: wanted {len(names)} labels, one for each of "
            f"{', '.join(names)}, found {len(labels)}"
        )
    both = zip(sources, labels or names, strict=True)
    return [Injected(source, source.side(label, source.seed)) for source, label in both]
