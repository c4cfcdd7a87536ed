"""Which errors of alignment a claim reads: of one study, fitted and judged in one way.

Kinds of rows, and roles of the two models, may stem from different studies. For each, a study with
the methods that the claim compares is read, if there is one, and a study whose maps all have
another training than the default only if there is no other. Of several studies, the one whose
protocol has the fewest choices that are not the default is read; then the one with the most
methods, then with the most pairs of models, then the first. The training is no part of the
protocol, because only maps that learn by gradient descent name it: each method is read with the
default training if it has it, or else with its first. If there are several numbers of
rows, the number that most values have is read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from simlab.representations.kinds import ATTENTION
from simlab.store.results import ALIGNMENT, OF_ONE_METHOD, PROTOCOL

if TYPE_CHECKING:
    import pandas as pd

_TRAINING, _KEEPS, _ATTENTION = "training", "truncation", "attention_rows"
_HEAD = "head"
_OF_METHOD = (_TRAINING, _KEEPS, *OF_ONE_METHOD, _ATTENTION)  # no part of the protocol
_STUDY = "study"
ERROR = ["measure", "kind", "method", "rows", "x", "y", "layer_x"]


def of_one_study(rows: pd.DataFrame, methods: Collection[str] = ()) -> pd.DataFrame:
    """Return the rows of alignment of one study for each kind and for each pair of roles.

    Further columns are ``method``, ``rows`` (fitted or judged on), ``protocol`` (in words),
    ``training``, ``head`` and ``left_out`` (in words: which rows were not read). `methods` are the
    methods that are to be compared.
    """
    import pandas as pd

    rows = rows.assign(**_columns_of_options(rows), left_out="")
    names = zip(rows["comparison"], rows["protocol"], rows[_ATTENTION], strict=True)
    rows = rows.assign(**{_STUDY: ["|".join(words) for words in names]})
    sides = zip(rows["role_x"], rows["role_y"], strict=True)
    roles = pd.Series([",".join(sorted(pair)) for pair in sides], rows.index, dtype=object)
    parts = [
        _largest_study(part, methods) for _, part in rows.groupby(["kind", roles], dropna=False)
    ]
    return pd.concat(parts).sort_index() if parts else rows


def alike_in_protocol(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of protocols in which attention and hidden states were both studied.

    Rows of two roles have both models, whichever is first. A method counts with a training
    that both have.
    """
    import pandas as pd

    if rows.empty:
        return rows
    sides = zip(rows["role_x"], rows["role_y"], strict=True)
    columns = _columns_of_options(rows)
    key = pd.MultiIndex.from_arrays(
        [
            [",".join(sorted(pair)) for pair in sides],
            *(columns[name] for name in ("protocol", "method", "training")),
        ]
    )
    is_attention = (rows["kind"] == ATTENTION).to_numpy()
    return rows[key.isin(key[is_attention]) & key.isin(key[~is_attention])]


def left_out(*tables: pd.DataFrame) -> str:
    """Return what was not read beside these rows, in words; nothing if all was read."""
    words = [text for table in tables for text in table["left_out"].unique() if text]
    return "; ".join(dict.fromkeys(words))


def note(*parts: str) -> str:
    """Return the parts of a note that are not empty as one."""
    return "; ".join(part for part in parts if part)


def _columns_of_options(rows: pd.DataFrame) -> pd.DataFrame:
    """Return method, rows, protocol and training of each row; few rows differ in their options."""
    import pandas as pd

    texts = rows["options"].unique()
    options = [json.loads(text) for text in texts]
    columns = {
        "method": [_method(one) for one in options],
        "rows": [one.get("rows") for one in options],
        "protocol": [_in_words(one) for one in options],
        _TRAINING: [training_in_words(one) for one in options],
        _ATTENTION: [one.get(_ATTENTION, "") for one in options],
        _HEAD: [one.get("head_x") for one in options],
    }
    of_text = pd.DataFrame(columns, texts, dtype=object)
    return of_text.loc[rows["options"]].set_axis(rows.index)


def training_in_words(options: Mapping[str, Any]) -> str:
    """Return the training of a map and the options of its method; nothing for the defaults."""
    names = (_TRAINING, *OF_ONE_METHOD)
    return ", ".join(f"{name} {options[name]}" for name in names if name in options)


def mean_over_heads(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each layer where each head has a map: the mean."""
    is_head = rows[_HEAD].notna()
    if not is_head.any():
        return rows
    import pandas as pd

    keys = [*ERROR, "layer_y"]
    heads = rows[is_head].groupby(keys, sort=False, dropna=False)
    means = heads["value"].transform("mean")
    one = rows[is_head].assign(value=means)
    means_too = pd.concat([rows[~is_head], one.drop_duplicates(keys)]).sort_index()
    return means_too.drop_duplicates(ERROR)


def distinct(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without another row of the same error; all rows of heads."""
    return rows[rows[_HEAD].notna() | ~rows.duplicated([*ERROR, _HEAD])]


def _method(options: dict[str, Any]) -> str | None:
    """Return the name of the method; SVCCA that keeps other components is another method."""
    method: str | None = options.get("method")
    return f"{method}, keeps {options[_KEEPS]}" if _KEEPS in options else method


def _in_words(options: dict[str, Any]) -> str:
    names = [name for name in PROTOCOL if name in options and name not in _OF_METHOD]
    return ", ".join(f"{name} {options[name]}" for name in names)


def _largest_study(rows: pd.DataFrame, methods: Collection[str]) -> pd.DataFrame:
    """Return the rows of one study, protocol, training of each method, and number of rows."""
    studies = {str(name): study_of for name, study_of in rows.groupby(_STUDY, sort=False)}

    def rank(name: str) -> tuple[int, bool, int, int, int]:
        study_of = studies[name]
        missing = len(set(methods) - set(study_of["method"]))
        other_training = study_of[_TRAINING].str.startswith(f"{_TRAINING} ").all()
        words = study_of["protocol"].iloc[0]
        choices = len(words.split(", ")) if words else 0
        pairs = len(study_of[["x", "y"]].drop_duplicates())
        return missing, bool(other_training), choices, -study_of["method"].nunique(), -pairs

    study_rows = studies[min(studies, key=rank)]
    for column, value in (("method", _TRAINING), ("rows", "n")):
        best = study_rows.groupby(column, sort=False)[value].agg(_first if value != "n" else _usual)
        study_rows = study_rows[study_rows[value] == study_rows[column].map(best)]
    dropped = _in_few_words(rows.drop(index=study_rows.index), study_rows)
    study = study_rows["comparison"].iloc[0]
    words = f"read {ALIGNMENT}: {study}, left out {', '.join(dropped)}" if dropped else ""
    return study_rows.assign(left_out=words)


def _first(trainings: pd.Series) -> str:
    """Return the default training, or else the first."""
    return "" if (trainings == "").any() else str(trainings.iloc[0])


def _usual(counts: pd.Series) -> int:
    return int(counts.mode(dropna=False).iloc[-1])


def _in_few_words(rows: pd.DataFrame, read: pd.DataFrame) -> list[str]:
    """Return each study in words, with its choices and n where they are not those that are read."""
    numbers = set(read["n"])
    ways = rows[["comparison", "protocol", _TRAINING, "n"]].drop_duplicates()
    words = []
    for study, protocol, training, n in ways.itertuples(index=False, name=None):
        rest = [protocol, training, "" if n in numbers else f"n = {n}"]
        choices = ", ".join(word for word in rest if word)
        words.append(f"{ALIGNMENT}: {study} ({choices})" if choices else f"{ALIGNMENT}: {study}")
    return list(dict.fromkeys(words))
