"""The table of named tasks: columns, labels, metrics and splits of each task, as data.

Columns, label values and split names are as in the published data sets on the hub. If a package
has the same data (`offline`), the package is read and nothing is downloaded from the hub.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

# The branch in which the hub keeps a copy of every data set in parquet.
COPIES = "refs/convert/parquet"
_VALIDATION = "validation"
SINGLE, PAIR, CHOICE = "single", "pair", "multiple choice"


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
        Reader of the package that has the data (a key of `simlab.tasks.offline.READERS`).
    encoding
        Function that makes columns of texts from columns of the rows (a key of
        `simlab.tasks.encodings.ENCODINGS`); None reads the columns as they are.
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


_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("entailment", "neutral", "contradiction")
_POLARITY = ("negative", "positive")
_YES_NO = ("False", "True")
_NUMBERED = ("0", "1", "2", "3")


def _member(
    collection: str,
    name: str,
    title: str,
    text: str,
    pair: str | None = None,
    *,
    config: str = "",
    **facts: Any,
) -> TaskSpec:
    """Return a task of a collection; `config` is its configuration if that has another name."""
    return TaskSpec(name, title, text, pair=pair, hub=collection.format(config or name), **facts)


_glue = partial(_member, "nyu-mll/glue:{}")
# The data sets of SuperGLUE and Cosmos QA themselves are scripts, which the library no longer runs.
_SUPERGLUE = "aps/super_glue:{}"
_super_glue = partial(_member, f"{_SUPERGLUE}@{COPIES}")


def _mnli(name: str, which: str) -> TaskSpec:
    split = f"validation_{which}"
    title = f"MNLI, {which}"
    return _glue(name, title, "premise", "hypothesis", labels=_NLI, config="mnli", heldout=split)


def _paraphrases(name: str, title: str, text: str, label: str) -> TaskSpec:
    labels = (f"not_{label}", label)
    return _glue(name, title, f"{text}1", f"{text}2", labels=labels, metrics=("f1", "accuracy"))


_GLUE = (
    _glue("cola", "CoLA", "sentence", labels=("unacceptable", "acceptable"), metrics=("matthews",)),
    _mnli("mnli", "matched"),
    _mnli("mnli-mm", "mismatched"),
    _paraphrases("mrpc", "MRPC", "sentence", "equivalent"),
    _glue("qnli", "QNLI", "question", "sentence", labels=_ENTAILMENT),
    _paraphrases("qqp", "QQP", "question", "duplicate"),
    _glue("rte", "RTE", "sentence1", "sentence2", labels=_ENTAILMENT),
    _glue("sst2", "SST-2", "sentence", labels=_POLARITY),
    _glue(
        "stsb",
        "STS-B",
        "sentence1",
        "sentence2",
        labels=(),
        metrics=("spearman", "pearson"),
        heldout_shuffled=False,
        offline="stsb",
    ),
)
_SUPER_GLUE = (
    _super_glue(
        "cb",
        "CommitmentBank",
        "premise",
        "hypothesis",
        labels=("entailment", "contradiction", "neutral"),
        metrics=("accuracy", "f1_macro"),
    ),
    _super_glue(
        "copa",
        "COPA",
        "premise",
        before_choice="asked",
        choices=("choice1", "choice2"),
        labels=("0", "1"),
        encoding="copa",
    ),
    _super_glue(
        "multirc",
        "MultiRC",
        "paragraph",
        "answered",
        labels=_YES_NO,
        metrics=("f1", "exact_match", "accuracy"),
        encoding="multirc",
    ),
    _super_glue("wic", "WiC", "first", "second", labels=_YES_NO, encoding="wic"),
    _super_glue("wsc", "WSC", "marked", labels=_YES_NO, config="wsc.fixed", encoding="wsc"),
)
_OTHERS = (
    TaskSpec(
        "boolq",
        "BoolQ",
        text="question",
        pair="passage",
        label="answer",
        labels=_YES_NO,
        hub="google/boolq",
    ),
    TaskSpec(
        "yelp",
        "Yelp Polarity",
        text="text",
        labels=_POLARITY,
        hub="fancyzhx/yelp_polarity",
        heldout="test",
    ),
    TaskSpec(
        "hellaswag",
        "HellaSwag",
        text="ctx_a",
        before_choice="ctx_b",
        choices=("endings",),
        labels=_NUMBERED,
        hub="Rowan/hellaswag",
    ),
    TaskSpec(
        "cosmosqa",
        "CosmosQA",
        text="asked",
        choices=("answer0", "answer1", "answer2", "answer3"),
        labels=_NUMBERED,
        hub=f"allenai/cosmos_qa@{COPIES}",
        encoding="cosmosqa",
    ),
    TaskSpec(
        "rt",
        "Rotten Tomatoes",
        text="text",
        labels=_POLARITY,
        hub="cornell-movie-review-data/rotten_tomatoes",
        offline="rotten_tomatoes",
        train_size=4000,
        heldout_size=1000,
    ),
    TaskSpec(
        "imdb",
        "IMDB",
        text="text",
        labels=_POLARITY,
        hub="stanfordnlp/imdb",
        heldout="test",
        offline="imdb",
        heldout_size=5000,  # of the package's rows, a fifth
    ),
    TaskSpec(
        "quartz",
        "QuaRTz",
        text="question",
        choices=("choices",),
        label="answerKey",
        labels=("A", "B"),
        hub="allenai/quartz",
        offline="quartz",
        heldout_size=772,  # a fifth of its rows, some of which repeat another
    ),
)
# SuperGLUE's ReCoRD, which is no task here.
RECORD, RECORD_DATA = "record", _SUPERGLUE.format("record")
TASKS = {spec.name: spec for spec in (*_GLUE, *_SUPER_GLUE, *_OTHERS)}
