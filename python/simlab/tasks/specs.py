"""The table of named tasks: columns, labels, metrics and splits of each task, in ``tasks.toml``.

The file of this name in the folder ``$SIMCORE_TABLES`` adds tasks. Columns, label values and split
names are as in the published data sets on the hub. If a package has the same data (`READERS`), the
package is read and nothing is downloaded from the hub.

Some published rows keep in several columns what is one text. The encoding of a task takes the rows
of a split and returns them with further columns, which the spec of the task reads. Words that a
model is asked about are marked in the text: ``*`` stands around the first, ``#`` around the second.

The data sets that come as packages are read here, as tables in the format of the hub.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError
from simlab.papers.presets import user_tables
from simlab.store import assets
from simlab.store.files import read_json_lines

if TYPE_CHECKING:
    import pandas as pd

# The branch in which the hub keeps a copy of every data set in parquet.
COPIES = "refs/convert/parquet"
_VALIDATION = "validation"
SINGLE, PAIR, CHOICE = "single", "pair", "multiple choice"

FIRST_MARK, SECOND_MARK = "*", "#"
ROW_ID, GROUP = "row_id", "group"  # columns that the readers of packages add
QUESTION = "question_number"  # the column of the number of the question that a row answers
QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
# Questions of QuaRTz come as twins that say the opposite in the same words. With this least cosine
# of their words, all but 40 of the 3,860 questions have a twin, and the largest of 1,836 groups
# has 20 questions.
TWIN_SIMILARITY = 0.65
_QUARTZ_ROW = re.compile(r"(?P<question>.*?)\s+A: (?P<a>.*?)\s+B: (?P<b>.*)", re.DOTALL)


@dataclass(frozen=True)
class TaskSpec:
    """A named task.

    Attributes
    ----------
    name, title
        The name for commands, and the name in the literature.
    text
        Column of the text.
    labels
        Names of the classes in the order of their codes, or of the choices; empty for regression.
    hub
        ``NAME``, ``NAME:CONFIG`` or ``NAME:CONFIG@REVISION`` on the hub.
    metrics
        Names in `METRICS`, the main metric first.
    pair
        Column of the second text.
    choices
        Columns of the answers, or the one column that has a list of all answers.
    before_choice
        Column whose text precedes every answer.
    label
        Column of the label, which holds the code or the name of a class, or a number.
    train, heldout
        Names of the splits.
    heldout_shuffled
        Whether the held-out rows are shuffled; if False, they keep their order.
    offline
        Reader of the package that has the data (a key of `READERS`).
    encoding
        Function that makes columns of texts from columns of the rows (a key of
        `simlab.tasks.specs.ENCODINGS`); None reads the columns as they are.
    train_size, heldout_size
        Default numbers of rows; None is all rows (or a fifth, of data without a split).
    """

    name: str
    title: str
    text: str
    labels: tuple[str, ...]
    hub: str
    metrics: tuple[str, ...] = ("accuracy",)
    pair: str | None = None
    choices: tuple[str, ...] = ()
    before_choice: str | None = None
    label: str = "label"
    train: str = "train"
    heldout: str = "validation"
    heldout_shuffled: bool = True
    offline: str | None = None
    encoding: str | None = None
    train_size: int | None = None
    heldout_size: int | None = None

    @property
    def kind(self) -> str:
        """Return ``single``, ``pair`` or ``multiple choice``."""
        if self.choices:
            return CHOICE
        return PAIR if self.pair else SINGLE

    @property
    def test(self) -> str | None:
        """Return the name of the test split, whose labels are mostly hidden; None if it has none.

        A task whose test split is held out has no other one.
        """
        if not self.heldout.startswith(_VALIDATION):
            return None
        return self.heldout.replace(_VALIDATION, "test", 1)

    @property
    def is_regression(self) -> bool:
        """Return whether the label is a number and not a class."""
        return not self.labels

    @property
    def columns(self) -> tuple[str, ...]:
        """Return all columns that are read, the label last."""
        texts = (self.text, self.pair, self.before_choice, *self.choices, self.label)
        return tuple(column for column in texts if column)


def _read(file: Path) -> dict[str, TaskSpec]:
    """Read a table of tasks by name; its keys are the fields of `TaskSpec`."""
    specs = {}
    try:
        for name, row in tomllib.loads(file.read_text(encoding="utf-8")).items():
            fields: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in row.items()
            }
            specs[name] = TaskSpec(name, **fields)
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{file}: wanted a table of tasks, found: {error}") from error
    return specs


TASKS = _read(Path(__file__).with_name("tasks.toml"))
for _file in user_tables():
    if _file.name == "tasks.toml":
        TASKS |= _read(_file)


def _copa(rows: pd.DataFrame, where: str) -> pd.DataFrame:
    """Add ``asked``: the question that ``question``, "cause" or "effect", stands for."""
    asked = [QUESTIONS.get(kind) for kind in _column(rows, "question", where)]
    if None in asked:
        odd = rows["question"].iloc[asked.index(None)]
        raise UserError(f"{where}: column 'question' wanted cause or effect, found {odd!r}")
    return rows.assign(asked=asked)


def _cosmosqa(rows: pd.DataFrame, where: str) -> pd.DataFrame:
    """Add ``asked``: the context and the question, as the library jiant joins them."""
    contexts, questions = (_column(rows, name, where) for name in ("context", "question"))
    return rows.assign(asked=[f"{c} {q}" for c, q in zip(contexts, questions, strict=True)])


def _multirc(rows: pd.DataFrame, where: str) -> pd.DataFrame:
    """Add ``answered``, the question and one of its answers; and `QUESTION`.

    Column ``idx`` has the numbers of the paragraph, of its question, and of the answer.
    """
    questions, answers = (_column(rows, name, where) for name in ("question", "answer"))
    places = [(idx["paragraph"], idx["question"]) for idx in _column(rows, "idx", where)]
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
    answered = [f"{q} {a}" for q, a in zip(questions, answers, strict=True)]
    return rows.assign(answered=answered, **{QUESTION: [numbers[place] for place in places]})


def _wic(rows: pd.DataFrame, where: str) -> pd.DataFrame:
    """Add ``first`` and ``second``: the word, and each sentence with the word marked in it."""
    words = _column(rows, "word", where)
    added = {}
    for number, name in ((1, "first"), (2, "second")):
        columns = (f"sentence{number}", f"start{number}", f"end{number}")
        spans = zip(words, *(_column(rows, one, where) for one in columns), strict=True)
        added[name] = [
            f"{word}: {text[:a]}{FIRST_MARK}{text[a:b]}{FIRST_MARK}{text[b:]}"
            for word, text, a, b in spans
        ]
    return rows.assign(**added)


def _wsc(rows: pd.DataFrame, where: str) -> pd.DataFrame:
    """Add ``marked``: the text with the noun and the pronoun marked in it.

    ``span1_index`` counts the words between spaces before the noun, and ``span2_index`` those
    before the pronoun; the words at an index must be the words of the span.
    """
    names = ("text", "span1_index", "span1_text", "span2_index", "span2_text")
    every = zip(*(_column(rows, name, where) for name in names), strict=True)
    marked = []
    for row, (text, *spans) in enumerate(every, 1):
        words = str(text).split(" ")
        for place, span, mark in ((*spans[:2], FIRST_MARK), (*spans[2:], SECOND_MARK)):
            last = int(place) + len(str(span).split(" ")) - 1
            there = " ".join(words[int(place) : last + 1]).strip(FIRST_MARK).lower()
            if not there.startswith(str(span).lower()):
                raise UserError(
                    f"{where}: columns 'text' and spans wanted {span!r} at word {place}, found "
                    f"{there!r} in data row {row}"
                )
            words[int(place)] = mark + words[int(place)]
            words[last] += mark
        marked.append(" ".join(words))
    return rows.assign(marked=marked)


def _column(rows: pd.DataFrame, name: str, where: str) -> Any:
    if name not in rows.columns:
        raise UserError(f"{where}: wanted column {name!r}, found {', '.join(rows.columns)}")
    return rows[name]


ENCODINGS: dict[str, Callable[[pd.DataFrame, str], pd.DataFrame]] = {
    "copa": _copa,
    "cosmosqa": _cosmosqa,
    "multirc": _multirc,
    "wic": _wic,
    "wsc": _wsc,
}


def group_twins(texts: pd.Series, similarity: float) -> np.ndarray:
    """Return the number of the group of each text, int64 [n]; near-equal texts share a group.

    Two texts are in one group if the cosine of their sets of words is at least `similarity`, or if
    a chain of such pairs joins the two texts.
    """
    from scipy.sparse.csgraph import connected_components
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.preprocessing import normalize

    words = normalize(CountVectorizer(binary=True, dtype=np.float64).fit_transform(texts))
    return connected_components((words @ words.T) >= similarity, directed=False)[1]


def _reviews(source: str, name: str) -> pd.DataFrame:
    import pandas as pd

    frame = pd.read_csv(assets.fetch("rt"))
    frame = frame[frame["source"] == source].reset_index(drop=True)
    return frame.assign(**{ROW_ID: [f"{name}-{row}" for row in frame.index]})


def _read_stsb(path: Path, split: str) -> pd.DataFrame:
    import pandas as pd

    # Tab-separated without quoting; some rows have two further columns that name a source.
    lines = path.read_text(encoding="utf-8").split("\n")
    rows = [line.split("\t") for line in lines if line]
    return pd.DataFrame(
        {
            ROW_ID: [f"{split}-{row}" for row in range(len(rows))],
            "sentence1": [row[5] for row in rows],
            "sentence2": [row[6] for row in rows],
            "label": [float(row[4]) for row in rows],
        }
    )


def _quartz_row(path: Path, row: dict[str, Any]) -> dict[str, Any]:
    text = row["input"][-1]["content"]
    parts = _QUARTZ_ROW.fullmatch(text)
    if parts is None:
        raise UserError(f"{path}: wanted a question with answers A and B, found {text!r}")
    return {
        "question": parts["question"],
        "choices": {"text": [parts["a"], parts["b"]], "label": ["A", "B"]},
        "answerKey": row["ideal"],
    }


def _stsb() -> dict[str, pd.DataFrame]:
    """Return the official train and dev splits of STS-B; the test split is not read."""
    folder = assets.fetch("stsb")
    files = {"train": ("sts-train.csv", "train"), "validation": ("sts-dev.csv", "dev")}
    return {split: _read_stsb(folder / file, name) for split, (file, name) in files.items()}


def _quartz() -> dict[str, pd.DataFrame]:
    """Return the questions of QuaRTz, without a split; near twins have one number in `GROUP`."""
    import pandas as pd

    path = assets.fetch("quartz")
    rows = [_quartz_row(path, line) for line in read_json_lines(path)]
    frame = pd.DataFrame(rows).assign(**{ROW_ID: [f"quartz-{row}" for row in range(len(rows))]})
    return {"all": frame.assign(**{GROUP: group_twins(frame["question"], TWIN_SIMILARITY)})}


# Each returns a table for each split, or one under "all".
READERS = {
    "rotten_tomatoes": lambda: {"all": _reviews("rotten_tomatoes", "rt")},
    "imdb": lambda: {"all": _reviews("imdb", "imdb")},
    "stsb": _stsb,
    "quartz": _quartz,
}
