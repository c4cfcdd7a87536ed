"""Tasks from the data-set hub: any data set with text and label columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simlab.errors import UserError
from simlab.runtime import hub_reachable
from simlab.tasks import (
    FILE_SUFFIXES,
    Task,
    TaskOptions,
    build_task,
    encode_labels,
    heldout_count,
    split_frame,
    standard_frame,
)

if TYPE_CHECKING:
    import pandas as pd

# What data sets call their columns; an option of the user always wins.
TEXT_NAMES = ("text", "sentence", "sentence1", "premise", "question", "question1", "content")
PAIR_NAMES = {"sentence1": "sentence2", "premise": "hypothesis", "question1": "question2"}
LABEL_NAMES = ("label", "labels", "score", "stars")
HELDOUT_SPLITS = ("validation", "validation_matched", "dev", "test")
HUB_PREFIX = "hub:"


def load_hub_task(name: str, options: TaskOptions) -> Task:
    """Load data set ``NAME`` or ``hub:NAME[:CONFIG]`` and split it.

    The first of the validation, dev and test splits is held out; a data set that has only a
    training split is cut by a seeded shuffle.

    Raises
    ------
    UserError
        No such data set, no connection, no usable split or column.
    """
    splits = _download(name)
    if "train" not in splits:
        raise UserError(f"task {name}: wanted a split 'train', found {', '.join(splits)}")
    options = guess_columns(splits["train"].column_names, options)
    train = _frame(splits["train"], name, "train", options)
    heldout_split = next((split for split in HELDOUT_SPLITS if split in splits), None)
    if heldout_split is None:
        size = heldout_count(len(train), options)
        train, heldout = split_frame(train, size, options.split_seed)
    else:
        heldout = _frame(splits[heldout_split], name, heldout_split, options)
        train = train.sample(frac=1.0, random_state=options.split_seed)
        heldout = heldout.sample(frac=1.0, random_state=options.split_seed)
    train, heldout, names = _code_labels(train, heldout, splits["train"], name, options)
    return build_task(name.removeprefix(HUB_PREFIX), train, heldout, names, options)


def guess_columns(found: list[str], options: TaskOptions) -> TaskOptions:
    """Fill the columns that the user left open with the first customary name that is there."""
    text = options.text_column or next((name for name in TEXT_NAMES if name in found), None)
    pair = options.pair_column
    if pair is None and options.text_column is None and PAIR_NAMES.get(text) in found:
        pair = PAIR_NAMES[text]
    label = options.label_column or next((name for name in LABEL_NAMES if name in found), None)
    return TaskOptions(
        text, pair, label, options.train_size, options.heldout_size, options.split_seed
    )


def _download(name: str) -> dict[str, Any]:
    import datasets
    from datasets.exceptions import DatasetNotFoundError
    from huggingface_hub import constants

    path, _, config = name.removeprefix(HUB_PREFIX).partition(":")
    if not hub_reachable():  # the cache still serves what was loaded before
        datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        return dict(datasets.load_dataset(path, config or None))
    except (DatasetNotFoundError, ConnectionError, ValueError, FileNotFoundError) as error:
        files = ", ".join(FILE_SUFFIXES)
        reason = str(error).strip().partition("\n")[0]
        raise UserError(
            f"task {name}: wanted rt, stsb, a file ({files}) or a data set of the hub, "
            f"found: {reason}"
        ) from error


def _frame(split: Any, name: str, split_name: str, options: TaskOptions) -> pd.DataFrame:
    frame = standard_frame(split.to_pandas(), f"task {name}", options)
    feature = split.features[options.label_column or "label"]
    if hasattr(feature, "names") and (frame["label"] < 0).any():
        raise UserError(f"task {name}: wanted labels in split {split_name!r}, found hidden ones")
    return frame.assign(id=[f"{split_name}-{row}" for row in range(len(frame))])


def _code_labels(
    train: pd.DataFrame, heldout: pd.DataFrame, split: Any, name: str, options: TaskOptions
) -> tuple[pd.DataFrame, pd.DataFrame, tuple[str, ...]]:
    import pandas as pd

    feature = split.features[options.label_column or "label"]
    if hasattr(feature, "names"):  # ClassLabel: already coded 0, 1, ...
        return train, heldout, tuple(feature.names)
    labels, names = encode_labels(pd.concat([train["label"], heldout["label"]]), f"task {name}")
    cut = len(train)
    return train.assign(label=labels[:cut]), heldout.assign(label=labels[cut:]), names
