"""The columns of a data set without a name of its own: those with a usual name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from simlab.store.console import note_once

if TYPE_CHECKING:
    import pandas as pd

    from simlab.tasks.task import TaskOptions

PAIR_NAMES = {"sentence1": "sentence2", "premise": "hypothesis", "question1": "question2"}
TEXT_NAMES = ("text", "sentence", *PAIR_NAMES)
IMAGE_NAMES = ("image", "img")  # where a data set has no text
LABEL_NAMES = ("label", "labels", "score", "stars")


def guess_columns(rows: pd.DataFrame, options: TaskOptions, where: str) -> TaskOptions:
    """Set each column that `options` leave open to the first usual name that `rows` have.

    Half of a usual pair is no usual name: what the task is about may stand in another column. If
    `options` do not name the text, a note names the columns that are not read.
    """
    text, pair = options.text_column, options.pair_column
    label = options.label_column or next((name for name in LABEL_NAMES if name in rows), None)
    if text is None:
        usual = [name for name in (*TEXT_NAMES, *IMAGE_NAMES) if name in rows]
        text = next((name for name in usual if PAIR_NAMES.get(name, name) in rows), None)
        pair = pair or PAIR_NAMES.get(text or "")
        left = [repr(name) for name in rows.columns if name not in (text, pair, label)]
        if text is not None and left:
            note_once(f"{where}: columns that are not read: {', '.join(left)}")
    return replace(options, text_column=text, pair_column=pair, label_column=label)
