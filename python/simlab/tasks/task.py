"""The classes of a loaded task: two splits of examples, names of labels, options; the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.bounds import Count, FromZero, check_fields
from simlab.errors import UserError, argument, require_known
from simlab.store.console import note_once
from simlab.store.files import hash_json
from simlab.tasks.labels import KINDS

if TYPE_CHECKING:
    import pandas as pd

    from simlab.tasks.files import Picture

SPLITS = ("heldout", "train")
TEST = "test"  # rows that are neither, whose labels are not read (`corpus.load_test`)
ALL = "all"  # the rows of both, as they stand in the data (`simlab.tasks.corpus`)


@dataclass(frozen=True)
class TaskOptions:
    """How to read and split a task; None means the default of the task.

    Attributes
    ----------
    text_column
        Column of the (first) text.
    pair_column
        Column of the second text of a pair.
    label_column
        Column of the label or score.
    train_size
        Training rows; None is as in the fine-tuning of the model, else all (rt: 4000).
    heldout_size
        Held-out rows; None is as in the fine-tuning of the model, else all or 1/5 (rt: 1000).
    split_seed
        Seed of the split of the rows; None is as in the fine-tuning of the model, else 0.
    corpus_split
        With split ``all``, the one split of a data set whose texts are read, such as
        ``validation``; None is all splits, one after the other.
    labels
        ``classes`` or ``scores``; None is as in the fine-tuning of the model, else scores if all
        labels are numbers and some have a fraction. ``classes`` keeps -1 beside 0, 1, ... as a
        class; otherwise it stands for no label, and its rows are left out.

    Examples
    --------
    >>> from simlab import TaskOptions, load_task
    >>> task = load_task("rt", TaskOptions(train_size=64, heldout_size=32, split_seed=1))
    >>> len(task.train), len(task.heldout)
    (64, 32)
    """

    text_column: str | None = None
    pair_column: str | None = None
    label_column: str | None = None
    train_size: Count | None = None
    heldout_size: Count | None = None
    split_seed: FromZero | None = None
    corpus_split: str | None = None
    labels: str | None = None

    def __post_init__(self) -> None:
        """Raise UserError if a number is out of range, or a kind of labels is unknown."""
        check_fields(self)
        if self.labels is not None:
            require_known("labels", self.labels, KINDS)

    @property
    def texts(self) -> tuple[str | None, ...]:
        """Return the columns of texts that are named, None for the others."""
        return self.text_column, self.pair_column

    @property
    def seed(self) -> int:
        """Return the seed of the shuffle that splits the rows."""
        return self.split_seed or 0


@dataclass(frozen=True)
class Examples:
    """Examples of one split.

    Attributes
    ----------
    ids, texts
        Unique ids, and texts; of images the hashes of their content.
    pairs
        Second texts; None if the task has no pairs of texts.
    labels
        Shape [n]: int64 indices into the label names of the task, float64 values of a regression,
        or int64 numbers of the right choices.
    choices
        Answers of a multiple-choice task, equally many for every example; None for other tasks.
    in_words
        Whether the texts were given as lists of words; they are joined by spaces here.
    images
        The pictures of a task of images; None for other tasks.
    questions
        Shape [n]: the number of the question that an example answers, in a task where a metric is
        about all answers of a question; None for other tasks.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    pairs: tuple[str, ...] | None
    labels: np.ndarray
    choices: tuple[tuple[str, ...], ...] | None = None
    in_words: bool = False
    images: tuple[Picture, ...] | None = None
    questions: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def fingerprint(self) -> str:
        """Return the SHA-256 of ids, texts, labels and questions."""
        asked = [] if self.questions is None else [self.questions.tolist()]
        return hash_json([*self._texts, self.labels.tolist(), *asked])

    @cached_property
    def text_fingerprint(self) -> str:
        """Return the SHA-256 of ids and texts alone; representations do not depend on labels."""
        return hash_json(self._texts)

    @property
    def _texts(self) -> list[Any]:
        texts = [self.ids, self.texts, self.pairs]
        return texts if self.choices is None else [*texts, self.choices]

    def head(self, count: int) -> Examples:
        """Return the first `count` examples."""
        if not 1 <= count <= len(self):
            raise UserError(f"{argument('limit')}: wanted 1 to {len(self)} examples, found {count}")
        return self.at(range(count))

    def at(self, numbers: Iterable[int]) -> Examples:
        """Return the examples with these numbers, counted from 0."""
        chosen = list(numbers)
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        known = {name: rows for name, rows in columns.items() if rows is not None}
        del known["in_words"]  # says something of all examples
        parts: dict[str, Any] = {
            name: rows[chosen] if isinstance(rows, np.ndarray) else tuple(rows[i] for i in chosen)
            for name, rows in known.items()
        }
        return replace(self, **parts)

    def require_texts(self) -> None:
        """Raise UserError if the examples are images."""
        if self.images is not None:
            raise UserError(
                f"task: wanted texts, found images ({self.ids[0]}, ...); "
                f"{argument('modules', of='extract')} takes images"
            )

    @property
    def numbers(self) -> np.ndarray:
        """Return a number of the example that each of `each_choice` belongs to, int64."""
        numbers = np.unique(self.ids, return_inverse=True)[1]
        return np.repeat(numbers, [len(one) for one in self.choices or [("",)] * len(self)])

    def each_choice(self) -> Examples:
        """Return an example for each choice: the text, paired with the choice.

        Ids end in ``:`` and the number of the choice. The label is 1 for the right choice and 0
        for the others. Examples without choices are returned unchanged.
        """
        if self.choices is None:
            return self
        every = [(row, number) for row, c in enumerate(self.choices) for number in range(len(c))]
        return Examples(
            ids=tuple(f"{self.ids[row]}:{number}" for row, number in every),
            texts=tuple(self.texts[row] for row, _ in every),
            pairs=tuple(self.choices[row][number] for row, number in every),
            labels=np.array([number == self.labels[row] for row, number in every], np.int64),
        )


@dataclass(frozen=True)
class Task:
    """A named task with its two splits.

    Attributes
    ----------
    name
        Name of the task in results and figures.
    train, heldout
        Examples of the two splits.
    label_names
        Names of the classes; empty for regression.
    metrics
        Names in `METRICS`, the main metric first; results tables hold all. Empty means accuracy, or
        Spearman's correlation for regression.
    split_seed
        Seed of the shuffle that split the rows.
    labels
        What the labels were said to be, as in `TaskOptions`.
    taken
        What was taken for the labels, and which rows were left out: a line that is printed where
        a model gets a head for the task, or is scored on it.
    """

    name: str
    train: Examples
    heldout: Examples
    label_names: tuple[str, ...] = field(default=())
    metrics: tuple[str, ...] = field(default=())
    split_seed: int = 0
    labels: str | None = None
    taken: str = field(default="", compare=False)

    @property
    def is_pair(self) -> bool:
        """Return whether each example is a pair of texts."""
        return self.heldout.pairs is not None

    @property
    def is_multiple_choice(self) -> bool:
        """Return whether each example has several answers, of which one is right."""
        return self.heldout.choices is not None

    @property
    def is_regression(self) -> bool:
        """Return whether the label is a number and not a class."""
        return not self.label_names

    @property
    def metric(self) -> str:
        """Return the name of the main metric."""
        return self.all_metrics[0]

    @property
    def all_metrics(self) -> tuple[str, ...]:
        """Return the names of all metrics of the task, the main metric first."""
        return self.metrics or (("spearman",) if self.is_regression else ("accuracy",))

    @property
    def metric_inputs(self) -> dict[str, list[str]]:
        """Return the inputs of a job that scores the task by all its metrics."""
        return {"metrics": list(self.all_metrics)}

    def score(self, predictions: np.ndarray, labels: np.ndarray) -> float:
        """Return the main metric of held-out `predictions` (class indices or numbers, [n])."""
        return self.scores(predictions, labels)[self.metric]

    def scores(self, predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """Return every metric of held-out `predictions` (class indices or numbers, shape [n])."""
        questions = self.heldout.questions
        return {name: score(name, labels, predictions, questions) for name in self.all_metrics}

    def note_taken(self) -> None:
        """Print `taken` once in this process."""
        if self.taken:
            note_once(self.taken)

    def split(self, name: str) -> Examples:
        """Return split ``heldout`` or ``train``."""
        if name not in SPLITS:
            raise UserError(f"{argument('split', name)}: wanted {', '.join(SPLITS)} or {ALL}")
        return self.heldout if name == "heldout" else self.train


def _accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    # Scikit-learn's checks take sixty times as long, in each of the draws of an interval.
    return float(np.mean(labels == predictions))


def _f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Return the F1 score of class 1 (paraphrase, duplicate); 0 if class 1 is never predicted."""
    return float(_f1_of_classes(labels, predictions, np.array([1]))[0])


def _f1_macro(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Return the mean of the F1 scores of all classes; 0 for a class that is never predicted."""
    return float(np.mean(_f1_of_classes(labels, predictions, np.union1d(labels, predictions))))


def _f1_of_classes(labels: np.ndarray, predictions: np.ndarray, classes: np.ndarray) -> np.ndarray:
    found, wanted = (rows == classes[:, None] for rows in (predictions, labels))
    either = found.sum(1) + wanted.sum(1)
    return 2 * (found & wanted).sum(1) / np.maximum(either, 1)


def _exact_match(labels: np.ndarray, predictions: np.ndarray, questions: np.ndarray) -> float:
    """Return the share of questions all of whose answers are judged right (MultiRC)."""
    _, rows = np.unique(questions, return_inverse=True)
    return float(np.mean(np.bincount(rows, labels != predictions) == 0))


def _matthews(labels: np.ndarray, predictions: np.ndarray) -> float:
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(labels, predictions))


def _correlation(name: str, labels: np.ndarray, predictions: np.ndarray) -> float:
    from scipy import stats

    return float(getattr(stats, name)(predictions, labels).statistic)


Metric = Callable[..., float]
# Each metric takes labels and predictions, shape [n]; one in `OF_QUESTIONS` also takes the numbers
# of the questions that the rows answer.
METRICS: MappingProxyType[str, Metric] = MappingProxyType(
    {
        "accuracy": _accuracy,
        "exact_match": _exact_match,
        "f1": _f1,
        "f1_macro": _f1_macro,
        "matthews": _matthews,
        "pearson": partial(_correlation, "pearsonr"),
        "spearman": partial(_correlation, "spearmanr"),
    }
)
CORRELATIONS = ("pearson", "spearman")  # undefined where all labels are the same
BELOW_ZERO = ("matthews", *CORRELATIONS)  # from -1 to 1; the others are shares
OF_QUESTIONS = ("exact_match",)


def score(
    metric: str, labels: np.ndarray, predictions: np.ndarray, questions: np.ndarray | None = None
) -> float:
    """Return metric `metric` of predictions, [n], by its name in `METRICS`."""
    of_rows = (labels, predictions)
    return METRICS[metric](*of_rows, *([questions] if metric in OF_QUESTIONS else []))


def of_metric(frame: pd.DataFrame, metric: str | None = None) -> pd.DataFrame:
    """Return results with one metric of each task, the one that figures and claims are about.

    A task keeps its main metric, which every results file stores first, if `metric` is None or the
    task has no rows of it. Rows with other measures than metrics are kept.
    """
    scored = frame["measure"].isin(list(METRICS))
    rows = frame.loc[scored, ["task", "measure"]]
    if metric is not None and len(rows) and metric not in set(rows["measure"]):
        found = ", ".join(dict.fromkeys(rows["measure"]))
        raise UserError(
            f"{argument('metric', metric)}: wanted a metric in the results, found {found}"
        )
    metrics = dict(rows.drop_duplicates("task").itertuples(index=False, name=None))
    metrics |= dict.fromkeys(rows.loc[rows["measure"] == metric, "task"], metric)
    return frame[~scored | (frame["measure"] == frame["task"].map(metrics))]
