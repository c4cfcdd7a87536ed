"""Pretrain a BERT or a decoder from scratch: seeded, resumable, atomic."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.models.load import load_tokenizer
from simlab.models.place import AUTO, check_device
from simlab.models.sources import PRETRAINING, ModelSource, resolve
from simlab.store.console import progress
from simlab.store.files import read_json, write_json
from simlab.store.jobs import Outcome, run_job
from simlab.store.runtime import best_device, quiet_libraries
from simlab.tasks import Task
from simlab.tasks.corpus import Texts, load_texts
from simlab.training.recipes import CAUSAL, MASKED, Pretraining

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from simlab.tasks import TaskOptions
    from simlab.training.language import Masking

_MOST_HELD_OUT = 500  # rows of tokens on which the loss is measured
_SAME_MASKS = 0  # seed of the masks of held-out rows, the same for models of every seed


def pretrain(
    texts: str | Path | Task | Texts | Sequence[str | Path | Task | Texts],
    out: str | Path,
    recipe: Pretraining | None = None,
    *,
    task_options: TaskOptions | None = None,
    device: str = AUTO,
    overwrite: bool = False,
    **changes: Any,
) -> Outcome:
    """Pretrain a BERT or a decoder of any size, with weights drawn from a seed, on texts of tasks.

    Plain ``from_pretrained`` loads the folder. An interrupted run continues at its last Trainer
    checkpoint, and ends with the weights of a run without interruption: on the CPU, bit for bit
    with the same number of threads.

    Parameters
    ----------
    texts
        Tasks whose training texts are read (``rt``, ``imdb``, ``stsb``, ``quartz`` are offline), or
        files of sentences (.txt). The loss is measured on the held-out rows of a task, or on every
        20th sentence of a file.
    out
        The model folder to make, with the tokenizer and ``pretraining.json``: the loss on held-out
        rows, and the loss of the words' frequencies. Each of the steps to keep is such a folder
        within it, ``checkpoint-STEP``.
    recipe, **changes
        Size and training (`simlab.training.recipes.Pretraining`); keywords replace fields, such
        as ``seed=2`` or ``hidden=256``.
    task_options
        Columns and split of the tasks.
    device
        As for `finetune`.
    overwrite
        As for `truncate`.

    Returns
    -------
    Outcome
        The model folder, and the seconds that training took.

    Raises
    ------
    UserError
        A value of the recipe is out of range, a task or the tokenizer is bad, the disk is full, or
        `out` has other content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import TaskOptions, pretrain
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> size = {"layers": 2, "hidden": 16, "heads": 2, "vocabulary": 500}
    >>> pretrain("rt", "runs/pretrained", seed=1, max_steps=2, task_options=few, **size).path
    PosixPath('runs/pretrained')
    """
    check_device(device)
    recipe = (recipe or Pretraining()).changed(changes)
    source = resolve(recipe.tokenizer)
    several = [texts] if isinstance(texts, str | Path | Task | Texts) else texts
    read = tuple(t if isinstance(t, Texts) else load_texts(t, task_options) for t in several)
    inputs = {
        "step": "pretrain",
        "texts": [one.fingerprint for one in read],
        "tokenizer": source.fingerprint,
        "recipe": recipe.without_tokenizer(),
    }

    def make(partial: Path) -> None:
        from simlab.training.trainer import trainer_folder

        with trainer_folder(partial) as scratch:
            _train(read, source, recipe, scratch, best_device() if device == AUTO else device)

    return run_job(Path(out), inputs, make, replace=overwrite, resumable=True)


def read_pretraining(folder: Path) -> dict[str, Any]:
    """Read what `pretrain` measured: ``loss``, ``unigram_loss``, ``accuracy`` and the rest."""
    return read_json(folder / PRETRAINING)


@dataclass(frozen=True)
class _Data:
    """The inputs of all seeds: the tokenizer, rows of tokens, and how often each word comes."""

    tokenizer: PreTrainedTokenizerBase
    train: list[dict[str, Any]]
    heldout: list[dict[str, Any]]
    counts: np.ndarray


@lru_cache(maxsize=1)  # models of other seeds read the same
def _read(
    texts: tuple[Texts, ...], source: ModelSource, fingerprint: str, words: int, max_length: int
) -> _Data:
    from simlab.training.language import common_words, token_counts, windows

    train = [text for one in texts for text in one.train]
    tokenizer = common_words(load_tokenizer(source), train, words)
    tokenizer.model_max_length = max_length
    heldout = [text for one in texts for text in one.heldout]
    sample = np.random.default_rng(0).permutation(len(heldout))[:_MOST_HELD_OUT]
    return _Data(
        tokenizer,
        windows(tokenizer, train, max_length),
        windows(tokenizer, [heldout[i] for i in sorted(sample)], max_length),
        token_counts(tokenizer, train),
    )


def _train(
    texts: tuple[Texts, ...], source: ModelSource, recipe: Pretraining, scratch: Path, device: str
) -> None:
    """Write the model and what was measured beside `scratch`, the folder of the Trainer."""
    quiet_libraries()
    from simlab.training.language import kept_folder
    from simlab.training.trainer import finished_checkpoint, last_state, median_step_seconds

    data = _read(texts, source, source.fingerprint, recipe.vocabulary, recipe.max_length)
    checkpoint = finished_checkpoint(scratch, recipe.steps(len(data.train)))
    if checkpoint is None:
        model = _initial_model(data.tokenizer, recipe)
        _run_trainer(model, data, recipe, scratch, device)
    else:  # interrupted after the last step
        model = _load(checkpoint, recipe, device)
    state, out = last_state(scratch), scratch.parent
    measured = _measure(model, data, recipe) | {
        "steps": state["global_step"],
        "seconds_per_step": median_step_seconds(state),
    }
    model.save_pretrained(out)
    data.tokenizer.save_pretrained(out)
    write_json(out / PRETRAINING, measured)
    for step in recipe.kept:
        folder = kept_folder(scratch, step)
        measured = _measure(_load(folder, recipe, device), data, recipe) | {"steps": step}
        write_json(folder / PRETRAINING, measured)
    for step in recipe.kept:  # after all of them: a run that ends before finds them again
        folder = kept_folder(scratch, step)
        shutil.copytree(folder, out / folder.name, dirs_exist_ok=True)


def _initial_model(tokenizer: PreTrainedTokenizerBase, recipe: Pretraining) -> PreTrainedModel:
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, set_seed

    set_seed(recipe.seed)
    # The names of BERT; a GPT-2 takes them for its own (`GPT2Config.attribute_map`).
    size: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": recipe.hidden,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        "max_position_embeddings": recipe.max_length,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if recipe.objective == CAUSAL:
        config = GPT2Config(
            **size,
            n_inner=recipe.width,
            resid_pdrop=recipe.dropout,
            embd_pdrop=recipe.dropout,
            attn_pdrop=recipe.dropout,
            bos_token_id=tokenizer.cls_token_id,
            eos_token_id=tokenizer.sep_token_id,
        )
        return GPT2LMHeadModel(config)
    config = BertConfig(
        **size,
        intermediate_size=recipe.width,
        hidden_dropout_prob=recipe.dropout,
        attention_probs_dropout_prob=recipe.dropout,
    )
    return BertForMaskedLM(config)


def _load(folder: Path, recipe: Pretraining, device: str) -> PreTrainedModel:
    from transformers import BertForMaskedLM, GPT2LMHeadModel

    kind = GPT2LMHeadModel if recipe.objective == CAUSAL else BertForMaskedLM
    return kind.from_pretrained(folder).to(device)  # type: ignore[arg-type]


def _masking(data: _Data, recipe: Pretraining, seed: int) -> Masking:
    from simlab.training.language import Masking

    masked = recipe.objective == MASKED
    return Masking(data.tokenizer, mlm=masked, mlm_probability=recipe.masked, seed=seed)


def _run_trainer(
    model: PreTrainedModel, data: _Data, recipe: Pretraining, folder: Path, device: str
) -> None:
    from transformers import set_seed

    from simlab.training.language import KeepSteps, LanguageTrainer
    from simlab.training.trainer import ShowProgress, StepTimes, train

    set_seed(recipe.seed)
    steps = recipe.steps(len(data.train))
    collator = _masking(data, recipe, recipe.seed)
    with progress(f"pretraining, seed {recipe.seed}", steps) as advance:
        kept = KeepSteps(recipe.kept, data.tokenizer, folder)
        callbacks = [StepTimes(), ShowProgress(advance), kept]
        how = (recipe, folder, callbacks, LanguageTrainer, device)
        train(model, data.tokenizer, data.train, collator, *how)


def _measure(model: PreTrainedModel, data: _Data, recipe: Pretraining) -> dict[str, Any]:
    """Return the loss of a model on held-out rows, its size, and how it was made."""
    from simlab.training.language import prediction_scores

    collator = _masking(data, recipe, _SAME_MASKS)
    return {
        **prediction_scores(model, data.heldout, collator, recipe.batch_size, data.counts),
        "train_tokens": int(data.counts.sum()),
        "words": len(data.tokenizer),
        "parameters": sum(p.numel() for p in model.parameters()),
        "recipe": asdict(recipe),
    }
