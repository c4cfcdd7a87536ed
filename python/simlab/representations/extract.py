"""Extract every layer of a model in one forward pass, and write the rows batch by batch.

`kinds` defines the rows of each kind of representation, and `folder` the files on disk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.bounds import bounded, replaced
from simlab.errors import UserError, argument, require_known
from simlab.models.built import BuiltModel, build_model, is_built
from simlab.models.checkpoint import Checkpoint, length_of, load_examples
from simlab.models.place import PRECISIONS
from simlab.models.sources import ModelSource, step_label
from simlab.representations.kinds import KINDS, WORD_SOURCES
from simlab.representations.passes import OF_STATES, SHARED, ExtractOptions, extract_to
from simlab.representations.recorded import POOLS, Recording, record_to
from simlab.store.jobs import Outcome, run_job

if TYPE_CHECKING:
    from simlab.tasks import Examples, Task, TaskOptions


@bounded
def extract(
    model: str | Path | ModelSource,
    task: str | Path | Task,
    out: str | Path,
    options: ExtractOptions | None = None,
    *,
    modules: str | Sequence[str] = (),
    pool: str | None = None,
    label: str | None = None,
    seed: int | None = None,
    step: int | None = None,
    task_options: TaskOptions | None = None,
    overwrite: bool = False,
    **changes: Any,
) -> Outcome:
    """Write the representations that every layer of a model gives one split of a task.

    Parameters
    ----------
    model
        ``minilm`` (offline), a local folder, or a model of the hub; with `modules` also
        ``timm:NAME``, ``torchvision:NAME`` or ``module:function`` (`simlab.models.built`).
    task
        As for `finetune`. With `split` ``all`` also a ``.txt`` file with a sentence on each line,
        and tables without labels. With `modules` also a task of images.
    out
        The representation folder to make.
    options, **changes
        Which representations to extract; keywords replace fields of `ExtractOptions`, such as
        ``kind="word-last"``.
    modules
        Record the outputs of these modules in place of hidden states, as `simcore.record` does: a
        name or a glob over names (``*`` stops at a dot, ``**`` does not).
    pool
        Rows of modules: ``first``, ``last``, ``mean``, ``tokens``, ``flatten`` of tokens;
        ``spatial-mean``, ``positions``, ``flatten`` of images.
    label
        Name of the model in results and figures; with `step`, by default its run and the step.
    seed
        Seed to store: of the fine-tuning, or of the weights of a random twin. Models whose labels
        differ in it alone, such as ``FT[1]`` and ``FT[2]``, are seeds of one model on the page.
    step
        Step of training to store.
    task_options
        Columns and split of the task; the default split of a fine-tuned model is the split of its
        fine-tuning.
    overwrite
        As for `truncate`.

    Returns
    -------
    Outcome
        The representation folder: all layers, with a row for each example, word or token by `kind`.

    Raises
    ------
    UserError
        The model, task, kind, split or module is unknown, the CLS token is missing or elsewhere
        (kind `cls`), the tokenizer is a slow one (the other kinds), the model gives no attention
        weights or is an encoder-decoder, a pool does not fit the modules, or `out` has other
        content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, extract
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> extract("minilm", "rt", "runs/reps/orig", label="ORIG", task_options=few).path
    PosixPath('runs/reps/orig')
    >>> words = extract("minilm", "rt", "runs/reps/words", kind="word-last", task_options=few)
    """
    options = replaced(options or ExtractOptions(), changes)
    options.check()
    modules = (modules,) if isinstance(modules, str) else tuple(modules)
    _check_modules(options, modules, pool)
    source = _source(model, modules, options.random_init_seed, options.weights)
    if not isinstance(source, BuiltModel):
        source = source.at(step)
    label = label or (source.name if step is None else step_label(source.name, step))
    tuned = [] if isinstance(source, BuiltModel) else [source]
    name, examples = load_examples(tuned, task, options.split, task_options, options.limit)
    length = length_of(tuned, options.max_length)
    options = dataclasses.replace(options, max_length=length, words=_word_source(options, examples))
    recording = Recording(modules, pool, length, **{n: getattr(options, n) for n in SHARED})
    identity: dict[str, Any] = {
        "kind": recording.kind if modules else options.kind,
        "words": None if modules else options.words,
        "split": options.split,
        "task": name,
        "model": source.name,
        "model_sha256": source.fingerprint,
        "random_init_seed": options.random_init_seed,
        "max_length": options.max_length if examples.images is None else None,
        "examples_sha256": examples.text_fingerprint,
        "special_tokens": options.special_tokens,
        "weights": None if isinstance(source, BuiltModel) else options.weights,
        "dtype": options.dtype,
        **vars(source.side(label, seed, options.random_init_seed)),
        **({} if step is None else {"step": step}),
    }
    if modules:
        identity |= {"modules": list(modules), "pool": pool}

    def make(partial: Path) -> None:
        if modules:
            record_to(partial, source, examples, recording, identity)
        else:
            assert not isinstance(source, BuiltModel)  # such a model has modules
            extract_to(partial, source, examples, options, identity)

    # The weights are in the key; where they lie is not.
    inputs = {name: value for name, value in identity.items() if name != "model"}
    return run_job(Path(out), {"step": "extract", **inputs}, make, replace=overwrite)


def _check_modules(options: ExtractOptions, modules: tuple[str, ...], pool: str | None) -> None:
    """Raise UserError if options of hidden states come with modules, or a pool without modules."""
    if not modules:
        if pool is not None:
            raise UserError(f"{argument('pool', pool)}: wanted {argument('modules')}, found none")
        return
    if pool is not None:
        require_known("pool", pool, POOLS)
    default = ExtractOptions()
    for name in OF_STATES:
        if (given := getattr(options, name)) != getattr(default, name):
            raise UserError(
                f"{argument(name, given)}: wanted none with {argument('modules')}, whose "
                f"{argument('pool')} says what a row is"
            )


def _source(
    model: str | Path | ModelSource, modules: tuple[str, ...], seed: int | None, weights: str
) -> Checkpoint | BuiltModel:
    if isinstance(model, ModelSource) or not is_built(model):
        return Checkpoint.open(model)
    if not modules:
        raise UserError(
            f"model {model}: wanted {argument('modules')}, because only models of transformers "
            "have a list of layers, found none"
        )
    if weights != PRECISIONS[0]:
        raise UserError(
            f"{argument('weights', weights)}: wanted none for {model}, which is built in a "
            "precision of its own"
        )
    return build_model(str(model), seed)


def _word_source(options: ExtractOptions, examples: Examples) -> str:
    """Return the definition of a word: the given one, or the usual one of the texts."""
    if options.words is not None:
        return options.words
    return WORD_SOURCES[examples.in_words and KINDS[options.kind].has_words]
