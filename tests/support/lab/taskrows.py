"""A few rows of every named task in the columns, types and splits that the hub publishes.

The texts consist of the words of `tinymodels`; no row comes from the data sets.
"""

from __future__ import annotations

import random
from pathlib import Path

from support.lab.tinymodels import review

TRAIN, HELDOUT = 8, 6


def _text(rng: random.Random) -> str:
    return review(rng, rng.random() < 0.5)


def _glue(columns: tuple[str, ...], names: list[str] | None, heldout: tuple[str, ...]):
    """GLUE: texts, a class or a float from 0 to 5, and a running number; test labels hidden."""

    def make(rng: random.Random, split: str, row: int) -> dict:
        label = row % len(names) if names else (row % 6) * 0.8 + 0.2
        if split.startswith("test"):
            label = -1 if names else -1.0
        return {column: _text(rng) for column in columns} | {"label": label, "idx": row}

    features = dict.fromkeys(columns, "string")
    features |= {"label": names or "float32", "idx": "int32"}
    tests = tuple(split.replace("validation", "test") for split in heldout)
    return features, make, ("train", *heldout, *tests)


def _boolq(rng, split, row):
    return {
        "question": _text(rng),
        "answer": row % 2 == 0,
        "passage": f"{_text(rng)}. {_text(rng)}",
    }


def _labelled(rng, split, row):
    return {"text": f"{_text(rng)}\\n {_text(rng)}", "label": row % 2}


def _hellaswag(rng, split, row):
    first, second = _text(rng), _text(rng)
    return {
        "ind": row,
        "activity_label": "Music",
        "ctx_a": first,
        "ctx_b": second,
        "ctx": f"{first} {second}",
        "endings": [_text(rng) for _ in range(4)],
        "source_id": f"activitynet~v_{row}",
        "split": "val" if split == "validation" else split,
        "split_type": "indomain",
        "label": "" if split == "test" else str(row % 4),
    }


def _cosmosqa(rng, split, row):
    answers = {f"answer{number}": _text(rng) for number in range(4)}
    label = -1 if split == "test" else row % 4
    texts = {"id": f"3Q{row}##{row}", "context": _text(rng), "question": f"why {_text(rng)}"}
    return texts | answers | {"label": label}


def _quartz(rng, split, row):
    return {
        "id": f"QRQA-{row}-1",
        "question": _text(rng),
        "choices": {"text": [_text(rng), _text(rng)], "label": ["A", "B"]},
        "answerKey": "AB"[row % 2],
        "para": _text(rng),
        "para_id": f"QRSent-{row}",
    }


def _copa(rng, split, row):
    texts = {name: _text(rng) for name in ("premise", "choice1", "choice2")}
    label = -1 if split == "test" else row // 2 % 2
    return texts | {"question": ("cause", "effect")[row % 2], "idx": row, "label": label}


def _multirc(rng, split, row):
    texts = {name: _text(rng) for name in ("paragraph", "question", "answer")}
    number = {"paragraph": row // 2, "question": row // 2, "answer": row}
    return texts | {"idx": number, "label": -1 if split == "test" else row % 2}


def _wic(rng, split, row):
    texts = [f"{_text(rng)} and the film {row}" for _ in "12"]
    starts = [text.rindex("film") for text in texts]
    return {
        "word": "film",
        **{f"sentence{number}": text for number, text in enumerate(texts, 1)},
        **{f"start{number}": start for number, start in enumerate(starts, 1)},
        **{f"end{number}": start + 4 for number, start in enumerate(starts, 1)},
        "idx": row,
        "label": -1 if split == "test" else row % 2,
    }


def _wsc(rng, split, row):
    text = _text(rng)
    return {
        "text": f"The plot {row} helped the cast because it, of course, was {text}.",
        "span1_index": 0,
        "span2_index": 7,
        "span1_text": "the plot",
        "span2_text": "it",
        "idx": row,
        "label": -1 if split == "test" else row % 2,
    }


_TEXT = {"text": "string"}
_NEW = ("train", "validation", "test")
_PAIR, _NLI = ("sentence1", "sentence2"), ["entailment", "neutral", "contradiction"]
_MNLI = _glue(("premise", "hypothesis"), _NLI, ("validation_matched", "validation_mismatched"))
_ENTAILED = ["entailment", "not_entailment"]
_VALIDATION = ("validation",)
# Per task: features (a list is a ClassLabel), maker of row, splits.
FORMATS = {
    "cola": _glue(("sentence",), ["unacceptable", "acceptable"], _VALIDATION),
    "mnli": _MNLI,
    "mnli-mm": _MNLI,
    "mrpc": _glue(_PAIR, ["not_equivalent", "equivalent"], _VALIDATION),
    "qnli": _glue(("question", "sentence"), _ENTAILED, _VALIDATION),
    "qqp": _glue(("question1", "question2"), ["not_duplicate", "duplicate"], _VALIDATION),
    "rte": _glue(_PAIR, _ENTAILED, _VALIDATION),
    "sst2": _glue(("sentence",), ["negative", "positive"], _VALIDATION),
    "stsb": _glue(_PAIR, None, _VALIDATION),
    "cb": _glue(("premise", "hypothesis"), ["entailment", "contradiction", "neutral"], _VALIDATION),
    "copa": (
        dict.fromkeys(("premise", "choice1", "choice2", "question"), "string")
        | {"idx": "int32", "label": ["choice1", "choice2"]},
        _copa,
        _NEW,
    ),
    "multirc": (
        dict.fromkeys(("paragraph", "question", "answer"), "string")
        | {"idx": "numbers", "label": ["False", "True"]},
        _multirc,
        _NEW,
    ),
    "wic": (
        dict.fromkeys(("word", "sentence1", "sentence2"), "string")
        | dict.fromkeys(("start1", "start2", "end1", "end2", "idx"), "int32")
        | {"label": ["False", "True"]},
        _wic,
        _NEW,
    ),
    "wsc": (
        {"text": "string", "span1_index": "int32", "span2_index": "int32"}
        | {"span1_text": "string", "span2_text": "string", "idx": "int32"}
        | {"label": ["False", "True"]},
        _wsc,
        _NEW,
    ),
    "boolq": (
        {"question": "string", "answer": "bool", "passage": "string"},
        _boolq,
        ("train", "validation"),
    ),
    "yelp": (_TEXT | {"label": ["1", "2"]}, _labelled, ("train", "test")),
    "hellaswag": (
        {"ind": "int32", "activity_label": "string", "ctx_a": "string", "ctx_b": "string"}
        | {"ctx": "string", "endings": "strings", "source_id": "string", "split": "string"}
        | {"split_type": "string", "label": "string"},
        _hellaswag,
        _NEW,
    ),
    "cosmosqa": (
        dict.fromkeys(("id", "context", "question"), "string")
        | {f"answer{number}": "string" for number in range(4)}
        | {"label": "int32"},
        _cosmosqa,
        _NEW,
    ),
    "rt": (_TEXT | {"label": ["neg", "pos"]}, _labelled, _NEW),
    "imdb": (_TEXT | {"label": ["neg", "pos"]}, _labelled, ("train", "test")),
    "quartz": (
        {"id": "string", "question": "string", "choices": "choices", "answerKey": "string"}
        | {"para": "string", "para_id": "string"},
        _quartz,
        _NEW,
    ),
}


def published(name: str):
    """Return the splits of task `name` as the hub's library does: as a `DatasetDict`."""
    import datasets

    features, make, splits = FORMATS[name]
    types = {column: _feature(kind) for column, kind in features.items()}
    rng = random.Random(5)
    tables = {}
    for split in splits:
        rows = [make(rng, split, row) for row in range(TRAIN if split == "train" else HELDOUT)]
        tables[split] = datasets.Dataset.from_list(rows, features=datasets.Features(types))
    return datasets.DatasetDict(tables)


def write_published(folder: Path, name: str, splits=None) -> Path:
    """Write the splits of task `name` as the files of the hub's repositories."""
    folder.mkdir(parents=True)
    for split, table in (splits or published(name)).items():
        table.to_parquet(folder / f"{split}-00000-of-00001.parquet")
    return folder


def _feature(kind):
    import datasets

    if isinstance(kind, list):
        return datasets.ClassLabel(names=kind)
    texts = datasets.List(datasets.Value("string"))
    numbers = dict.fromkeys(("paragraph", "question", "answer"), datasets.Value("int32"))
    nested = {"strings": texts, "choices": {"text": texts, "label": texts}, "numbers": numbers}
    return nested[kind] if kind in nested else datasets.Value(kind)
