"""From tables to tasks: check columns, code labels, split rows.

Every reader makes frames with the columns ``id``, ``text``, ``label`` and perhaps ``pair`` or
``choices``, and `build_task` makes a task of two such frames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.tasks.files import IMAGE, picture_columns
from simlab.tasks.labels import HIDDEN, NUMBER, SCORES, code_frames, repeats, require_finite
from simlab.tasks.specs import ENCODINGS, GROUP, QUESTION, ROW_ID, TaskSpec
from simlab.tasks.task import CORRELATIONS, Examples, Task, TaskOptions

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_HELDOUT_SHARE = 0.2
IN_WORDS = "in_words"  # True in every row if the texts are lists of words
_SHOWN = 12  # names of classes in a line


def build_task(
    name: str,
    train: pd.DataFrame,
    heldout: pd.DataFrame | None,
    options: TaskOptions,
    *,
    where: str = "",
    label_names: Sequence[str] | None = None,
    metrics: Sequence[str] = (),
    named: bool = False,
) -> Task:
    """Make a task of a frame of training rows and a frame of held-out rows.

    If `heldout` is None, `train` is split (`split_frame`). If the labels are codes, `label_names`
    are the names of the classes; None codes the labels here.
    """
    where, left_out = where or f"task {name}", Counter[str]()
    parts = [train] if heldout is None else [train, heldout]
    if label_names is None:
        parts, label_names = code_frames(parts, where, options.labels, left_out)
    if heldout is None:
        train, heldout = split_frame(parts[0], options, where, left_out)
    else:
        train, heldout = parts
    seen = len(train)
    train = without_heldout(name, train, heldout)
    left_out["for training, with a held-out text"] += seen - len(train)
    require_varied(np.concatenate([train["label"], heldout["label"]]), f"task {name}")
    splits = sized_examples(name, train, heldout, options)
    kept: dict[str, Any] = {"split_seed": options.seed, "labels": options.labels}
    task = Task(name, *splits, tuple(label_names), tuple(metrics), **kept)
    if task.metric in CORRELATIONS:
        size = argument("heldout_size", len(task.heldout))
        require_varied(task.heldout.labels, f"task {name}, {size}, held-out split")
    return replace(task, taken=_taken(task, left_out, named=named))


def _taken(task: Task, left_out: Mapping[str, int], *, named: bool) -> str:
    """Return a line of what was taken for the labels of `task`, and which rows were left out.

    `left_out` has numbers of rows by the reason. If the labels are known (`named`), the line names
    only classes without rows, and is "" if there are none.
    """
    parts = [] if named else [_described(task)]
    if not (task.is_regression or task.is_multiple_choice):
        for split, examples in (("training", task.train), ("held-out", task.heldout)):
            counts = np.bincount(examples.labels, minlength=len(task.label_names))
            absent = [task.label_names[code] for code in np.flatnonzero(counts == 0)]
            parts += [f"no {split} row of {_enumerated(absent)}"] if absent else []
    dropped = [] if named else [f"{count} {why}" for why, count in left_out.items() if count]
    parts += [f"left out: {', '.join(dropped)}"] if dropped else []
    return f"task {task.name}: {'; '.join(parts)}" if parts else ""


def _described(task: Task) -> str:
    rows = f"{len(task.train)} training and {len(task.heldout)} held-out rows"
    if task.is_regression:
        every = np.concatenate([task.train.labels, task.heldout.labels])
        return f"scores from {every.min():g} to {every.max():g} in {rows}"
    names = task.label_names
    numbers = len(names) > 2 and all(map(NUMBER.fullmatch, names)) and task.labels is None
    other = f" ({argument('labels', SCORES)} takes the numbers as scores)" if numbers else ""
    return f"{len(names)} classes ({_enumerated(names)}) in {rows}{other}"


def _enumerated(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def without_heldout(name: str, train: pd.DataFrame, heldout: pd.DataFrame) -> pd.DataFrame:
    """Return the training rows whose text is not held out."""
    for split, frame in (("training", train), ("held-out", heldout)):
        if frame.empty:
            raise UserError(f"task {name}: wanted rows in the {split} split, found none")
    train = without_texts(train, heldout)
    if train.empty:
        raise UserError(f"task {name}: wanted texts to train on, found only held-out ones")
    return train


def without_texts(frame: pd.DataFrame, *others: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a frame whose text, up to case and spaces, is in none of the others."""
    known = {key for other in others for key in _text_keys(other)}
    return frame[[key not in known for key in _text_keys(frame)]]


def sized_examples(
    name: str, train: pd.DataFrame, heldout: pd.DataFrame, options: TaskOptions
) -> tuple[Examples, Examples]:
    """Return the first training and held-out rows, as many as the sizes want.

    Where rows answer questions, no held-out question lacks some of its answers: the last one is
    left out if the size would part it.
    """
    kept: list[pd.DataFrame] = []
    for option, frame in (("heldout_size", heldout), ("train_size", train)):
        size = getattr(options, option) or len(frame)
        if size > len(frame):
            raise UserError(
                f"task {name}: {argument(option)}: wanted 1 to {len(frame)} rows, found {size}"
            )
        kept.append(frame.iloc[:size])
    whole = kept[0]
    if QUESTION in heldout.columns:
        parted = heldout[QUESTION].iloc[len(whole) :]
        whole = whole[~whole[QUESTION].isin(parted)]
        if whole.empty:
            answers = int((heldout[QUESTION] == heldout[QUESTION].iloc[0]).sum())
            raise UserError(
                f"task {name}: {argument('heldout_size')}: wanted at least {answers} rows, all "
                f"answers of the first question, found {len(kept[0])}"
            )
    return examples_of(kept[1]), examples_of(whole)


def split_frame(
    frame: pd.DataFrame, options: TaskOptions, where: str, left_out: Counter[str] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split data that come without a split into training and held-out rows, by one shuffle.

    Rows that repeat an earlier text (up to case and spaces) are dropped first, and counted in
    `left_out`. Then the first ``options.heldout_size`` rows of the shuffle, or a fifth of the rows,
    are held out.
    """
    repeated, contradicting = repeats(_text_keys(frame), frame["label"])
    if left_out is not None:
        others = f" ({contradicting} with another label)" if contradicting else ""
        left_out[f"repeating an earlier text{others}"] += int(repeated.sum())
    frame = frame[~repeated]
    size = options.heldout_size
    if size is None:
        size = max(1, round(DEFAULT_HELDOUT_SHARE * len(frame)))
    if not 1 <= size < len(frame):
        raise UserError(
            f"{where}: {argument('heldout_size')}: wanted 1 to {len(frame) - 1} of {len(frame)} "
            f"different texts, found {size}"
        )
    rng = np.random.default_rng(options.seed)
    if GROUP not in frame.columns:
        order = rng.permutation(len(frame))
        return frame.iloc[order[size:]], frame.iloc[order[:size]]
    # The rows of a group stay together: whole groups are held out until there are enough rows, and
    # the surplus rows of the last group are dropped.
    groups, row_groups = np.unique(frame[GROUP].to_numpy(), return_inverse=True)
    # The place of a row's group in the shuffle, and the number of rows in the groups before it.
    ranks = rng.permutation(len(groups))[row_groups]
    rows_before = np.concatenate([[0], np.cumsum(np.bincount(ranks))])[ranks]
    heldout_rows = np.flatnonzero(rows_before < size)
    heldout = heldout_rows[np.argsort(ranks[heldout_rows], kind="stable")][:size]
    train = rng.permutation(np.flatnonzero(rows_before >= size))
    return frame.iloc[train], frame.iloc[heldout]


def shuffled(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return the rows of `frame` in a random order, drawn with `seed`.

    Rows that answer the same question stay together, in their order.
    """
    rng = np.random.default_rng(seed)
    if QUESTION not in frame.columns:
        return frame.iloc[rng.permutation(len(frame))]
    numbers, questions = np.unique(frame[QUESTION].to_numpy(), return_inverse=True)
    ranks = rng.permutation(len(numbers))[questions]
    return frame.iloc[np.argsort(ranks, kind="stable")]


def standard_frame(
    frame: pd.DataFrame,
    where: str,
    options: TaskOptions,
    prefix: str = "row",
    *,
    labelled: bool = True,
) -> pd.DataFrame:
    """Pick and check the text, pair and label columns of `frame`; add ids ``<prefix>-<number>``.

    A text may be a list of words, or a picture. If `labelled` is False, no label is read, and all
    labels are 0.
    """
    import pandas as pd

    texts = ("text", "pair") if options.pair_column else ("text",)
    named = {role: getattr(options, f"{role}_column") for role in (*texts, "label")}
    values_of = {
        role: _column(frame, where, name or role, f"{role}_column", bool(name))
        for role, name in named.items()
        if role in texts or labelled
    }
    columns: dict[str, Any] = {"id": _numbered(prefix, len(frame)), "label": 0, **values_of}
    pictures = picture_columns(values_of["text"])
    for role in texts if pictures is None else texts[1:]:
        columns[role] = [_as_text(value, where, named[role] or role) for value in values_of[role]]
    columns |= pictures or {}
    columns[IN_WORDS] = all(_is_list(value) for role in texts for value in values_of[role])
    return pd.DataFrame(columns)


def spec_frame(
    frame: pd.DataFrame, spec: TaskSpec, where: str, prefix: str, *, labelled: bool = True
) -> pd.DataFrame:
    """Pick and check the columns that `spec` names, and code the labels.

    Ids come from column `ROW_ID` if there is one, else they are ``<prefix>-<number>``. If
    `labelled` is False, no label is read, and all labels are 0.
    """
    import pandas as pd

    if spec.encoding:
        frame = ENCODINGS[spec.encoding](frame, where)
    names = spec.columns if labelled else spec.columns[:-1]
    values_of = {column: _column(frame, where, column) for column in names}
    columns: dict[str, Any] = {
        "id": frame[ROW_ID] if ROW_ID in frame.columns else _numbered(prefix, len(frame)),
        "text": [_as_text(value, where, spec.text) for value in values_of[spec.text]],
    }
    if spec.pair:
        columns["pair"] = [_as_text(value, where, spec.pair) for value in values_of[spec.pair]]
    if spec.choices:
        columns["choices"] = _choices(values_of, spec, where)
    columns["label"] = _spec_labels(values_of[spec.label], spec, where) if labelled else 0
    columns |= {name: frame[name] for name in (GROUP, QUESTION) if name in frame.columns}
    return pd.DataFrame(columns)


def require_varied(labels: Any, where: str) -> None:
    """Raise UserError if all labels are the same, because no model can learn from them."""
    values = np.unique(np.asarray(labels))
    if len(values) < 2:
        raise UserError(f"{where}: wanted at least two different labels, found {values.tolist()}")


def _numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{row}" for row in range(count)]


def _column(
    frame: pd.DataFrame, where: str, column: str, option: str = "", given: bool = False
) -> np.ndarray:
    """Return the values of `column`; raise UserError if it is missing or has empty cells.

    The message names `option`, which the user has `given`, or which can name another column.
    """
    if column not in frame.columns:
        found = ", ".join(map(str, frame.columns))
        named = f"{argument(option, column)}: " if given else ""
        other = f" (or another, with {argument(option)})" if option and not given else ""
        raise UserError(f"{where}: {named}wanted column {column!r}{other}, found {found}")
    missing = np.flatnonzero(frame[column].isna().to_numpy())
    if missing.size:
        raise UserError(
            f"{where}: column {column!r} wanted a value in every row, found {missing.size} empty, "
            f"first in data row {missing[0] + 1}"
        )
    return frame[column].to_numpy()


def _as_text(value: Any, where: str, column: str) -> str:
    """Return `value` as a text; words of a list are joined by spaces."""
    if isinstance(value, Mapping | bytes):
        raise UserError(f"{where}: column {column!r} wanted texts, found {value!r:.60}")
    if not _is_list(value):
        return str(value)
    words = [str(word) for word in value]
    odd = next((word for word in words if len(word.split()) != 1), None)
    if odd is not None:
        raise UserError(f"{where}: column {column!r} wanted words without spaces, found {odd!r}")
    return " ".join(words)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def _choices(columns: dict[str, np.ndarray], spec: TaskSpec, where: str) -> list[tuple[str, ...]]:
    """Return the answers of every row, each after the text of column ``before_choice``."""
    if len(spec.choices) == 1:  # one column lists the answers, perhaps with their letters
        lists = columns[spec.choices[0]]
        lists = [value["text"] if isinstance(value, dict) else value for value in lists]
    else:
        lists = list(zip(*(columns[column] for column in spec.choices), strict=True))
    for row, answers in enumerate(lists):
        if len(answers) != len(spec.labels):
            raise UserError(
                f"{where}: column {spec.choices[0]!r} wanted {len(spec.labels)} choices, found "
                f"{len(answers)} in data row {row + 1}"
            )
    before = columns[spec.before_choice] if spec.before_choice else [""] * len(lists)
    return [
        tuple(f"{start} {answer}".strip() for answer in answers)
        for start, answers in zip(before, lists, strict=True)
    ]


def _spec_labels(values: np.ndarray, spec: TaskSpec, where: str) -> np.ndarray:
    """Return labels (names or codes) as class codes, int64; of a regression, as float64 numbers."""
    import pandas as pd

    place = f"{where}: column {spec.label!r}"
    if spec.is_regression:
        numbers = pd.to_numeric(pd.Series(values), errors="coerce").to_numpy(np.float64)
        return require_finite(numbers, place, values)
    rows, different = pd.factorize(values)
    codes = [_code(value, spec.labels) for value in different]
    if None in codes:
        unknown = different[codes.index(None)]
        row = int(np.flatnonzero(rows == codes.index(None))[0]) + 1
        found = "a hidden label" if unknown in HIDDEN else repr(str(unknown))
        raise UserError(
            f"{place} wanted {', '.join(spec.labels)} or 0 to {len(spec.labels) - 1}, found "
            f"{found} in data row {row}"
        )
    return np.array(codes, np.int64)[rows]


def _code(value: Any, names: Sequence[str]) -> int | None:
    """Return the code of the class whose name or code is `value`; None if no class has it."""
    if str(value) in names and not isinstance(value, int | float | np.number):
        return names.index(str(value))
    try:
        code = int(value)
    except (ValueError, OverflowError):  # not a finite number
        return None
    return code if code == float(value) and 0 <= code < len(names) else None


def _text_keys(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    columns = [frame[name] for name in ("text", "pair") if name in frame.columns]
    if "choices" in frame.columns:
        columns += [frame["choices"].map("\n".join)]
    rows = zip(*columns, strict=True)
    return [tuple(" ".join(text.lower().split()) for text in row) for row in rows]


def examples_of(frame: pd.DataFrame) -> Examples:
    """Return the rows of a frame as examples."""
    pairs = tuple(frame["pair"]) if "pair" in frame.columns else None
    choices = tuple(frame["choices"]) if "choices" in frame.columns else None
    labels = frame["label"].to_numpy().copy()
    in_words = IN_WORDS in frame.columns and bool(frame[IN_WORDS].all())
    images = tuple(frame[IMAGE]) if IMAGE in frame.columns else None
    questions = frame[QUESTION].to_numpy(np.int64) if QUESTION in frame.columns else None
    ids, texts = tuple(frame["id"]), tuple(frame["text"])
    return Examples(ids, texts, pairs, labels, choices, in_words, images, questions)
