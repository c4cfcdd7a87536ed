"""Columns of data sets without a name of their own: no text is left unread without a word."""

import numpy as np
import pandas as pd
import pytest

from simlab.errors import UserError
from simlab.tasks import TaskOptions, hub, load_corpus, load_task
from simlab.tasks.columns import guess_columns
from simlab.tasks.encodings import ENCODINGS, QUESTIONS
from support.lab.taskrows import published, write_published

ROWS = 40


def texts(name):
    return [f"{name} of row {row}" for row in range(ROWS)]


def table(**columns):
    return pd.DataFrame({"label": [row % 2 for row in range(ROWS)], **columns})


LEFT = {
    "boolq": ({"question": texts("question"), "passage": texts("passage")}, "'passage'"),
    "copa": (
        {"premise": texts("premise"), "choice1": texts("one"), "choice2": texts("two")},
        "'choice1', 'choice2'",
    ),
    "wic": (
        {
            "word": ["film", "plot", "cast", "scene"] * 10,
            "sentence1": texts("first"),
            "sentence2": texts("second"),
        },
        "'word'",
    ),
    "words": (
        {"text": texts("text"), "spans": [["a", str(row)] for row in range(ROWS)]},
        "'spans'",
    ),
    "nothing first": (
        {"text": texts("text"), "passage": [None, float("nan"), *texts("passage")[2:]]},
        "'passage'",
    ),
    "no white space": (
        {"text": texts("text"), "passage": [f"这是第{row}篇文章" for row in range(ROWS)]},
        "'passage'",
    ),
    "long": (
        {"text": texts("text"), "other": ["MK" * 40 + str(r) for r in range(ROWS)]},
        "'other'",
    ),
    "nested": (
        {"text": texts("text"), "turns": [[[], [f"turn {row}", "b"]] for row in range(ROWS)]},
        "'turns'",
    ),
    "empty first": (
        {"text": texts("text"), "spans": [[], *([f"a{row}"] for row in range(1, ROWS))]},
        "'spans'",
    ),
    "dicts": ({"text": texts("text"), "answers": [{"a": "b"}, {"a": "c"}] * 20}, "'answers'"),
}


@pytest.mark.parametrize("name", LEFT)
def test_texts_that_would_not_be_read_are_refused(name):
    columns, left = LEFT[name]
    if name == "wic":  # a category has ten rows for each value
        columns = {**columns, "word": [f"word{row // 3}" for row in range(ROWS)]}
    if name == "dicts":
        columns = {**columns, "answers": [{"a": f"{row // 2}"} for row in range(ROWS)]}
    with pytest.raises(UserError) as caught:
        guess_columns(table(**columns), TaskOptions(), "task some/data")
    message = str(caught.value)
    assert message.startswith("task some/data: wanted options that name its columns, found texts")
    assert f"would not be read in {left}; text_column=" in message
    assert "pair_column=" in message
    chosen = guess_columns(table(**columns), TaskOptions(text_column="label"), "")
    assert chosen.text_column == "label"


def test_columns_without_content_are_let_pass_and_categories_named(capsys):
    rows = table(
        text=texts("text"),
        idx=range(ROWS),
        id=texts("id"),
        pairID=texts("pair"),
        user_id=texts("user"),
        source=["the web, mostly"] * ROWS,
        label_text=[("bad film", "good film")[row % 2] for row in range(ROWS)],
        genre=[("a play", "b letter", "b letter")[row % 3] for row in range(ROWS)],
        url=[f"https://example.org/{row}" for row in range(ROWS)],
        length=[1.5] * ROWS,
        spans=[[1, 2]] * ROWS,
        turns=[np.array([1.5, 2.5])] * ROWS,
        edited=pd.to_datetime(["2020-01-01"] * ROWS),
        doi=[None, *(f"10.1000/{row}" for row in range(1, ROWS))],
        page=[f"https://example.org/{'long/' * 20}{row}" for row in range(ROWS)],
        empty=[None] * ROWS,
    )
    chosen = guess_columns(rows, TaskOptions(), "task some/data")
    assert (chosen.text_column, chosen.pair_column, chosen.label_column) == ("text", None, "label")
    assert (
        capsys.readouterr().err == "note: task some/data: categories that are not read: 'genre'\n"
    )
    guess_columns(rows, TaskOptions(), "task some/data")
    assert capsys.readouterr().err == ""
    other = rows.assign(label_text=texts("why"))
    with pytest.raises(UserError, match="'label_text'"):
        guess_columns(other, TaskOptions(), "task some/data")


def test_a_folder_and_a_corpus_are_held_to_it(tmp_path):
    rows = pd.DataFrame({"question": texts("q"), "passage": texts("p"), "label": [0, 1] * 20})
    rows.to_parquet(tmp_path / "train.parquet")
    for load in (load_task, load_corpus):
        with pytest.raises(UserError, match="would not be read in 'passage'"):
            load(str(tmp_path))
    task = load_task(str(tmp_path), TaskOptions(text_column="question", pair_column="passage"))
    assert task.is_pair


def test_a_data_set_of_a_named_task_has_its_columns_and_metrics(monkeypatch):
    names = {"nyu-mll/glue:stsb": "stsb", "google/boolq": "boolq", "nyu-mll/glue:mrpc": "mrpc"}
    names |= {"aps/super_glue:copa": "copa", "aps/super_glue:wic": "wic"}
    served = {f"hub:{data}": published(task) for data, task in names.items()}
    monkeypatch.setattr(hub, "download", served.__getitem__)
    task = load_task("hub:nyu-mll/glue:stsb")
    assert task.name == "stsb"
    assert task.all_metrics == ("spearman", "pearson")
    assert task.is_regression
    assert load_task("hub:nyu-mll/glue:mrpc").all_metrics == ("f1", "accuracy")
    task = load_task("hub:google/boolq")
    assert task.is_pair
    assert task.label_names == ("False", "True")
    served["hub:aps/super_glue:copa@some-branch"] = published("copa")
    assert load_task("hub:aps/super_glue:copa@some-branch").is_multiple_choice
    assert load_task("hub:aps/super_glue:wic").heldout.texts[0].startswith("film: ")
    plain = load_task("hub:aps/super_glue:wic", TaskOptions(text_column="sentence1"))
    assert (plain.name, plain.is_pair) == ("aps/super_glue:wic", False)


def test_a_script_names_the_copy_in_parquet(monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("Dataset scripts are no longer supported, but found old.py")

    monkeypatch.setattr(hub, "load_data", refuse)
    copy = "hub:some/script:part@refs/convert/parquet"
    with pytest.raises(UserError, match=f"found old.py; the hub keeps a copy .* such as {copy}"):
        hub.download("hub:some/script:part@main")


def test_the_hub_s_own_copy_in_parquet_is_a_folder_of_a_task(tmp_path):
    for split, rows in published("cb").items():
        folder = tmp_path / "cb" / split
        folder.mkdir(parents=True)
        rows.to_parquet(folder / "0000.parquet")
    task = load_task(f"cb:{tmp_path}")
    assert task.all_metrics == ("accuracy", "f1_macro")
    assert task.is_pair


def test_texts_of_several_columns(tmp_path):
    tasks = {n: load_task(f"{n}:{write_published(tmp_path / n, n)}") for n in ENCODINGS}
    row = published("copa")["validation"][int(tasks["copa"].heldout.ids[0].split("-")[1])]
    asked = QUESTIONS[row["question"]]
    wanted = tuple(f"{asked} {row[name]}" for name in ("choice1", "choice2"))
    assert (tasks["copa"].heldout.texts[0], tasks["copa"].heldout.choices[0]) == (
        row["premise"],
        wanted,
    )
    row = published("multirc")["validation"][int(tasks["multirc"].heldout.ids[0].split("-")[1])]
    assert tasks["multirc"].heldout.pairs[0] == f"{row['question']} {row['answer']}"
    first, second = tasks["wic"].heldout.texts[0], tasks["wic"].heldout.pairs[0]
    assert first.startswith("film: ")
    assert " and the *film* " in first
    assert " and the *film* " in second
    text = tasks["wsc"].heldout.texts[0]
    assert text.startswith("*The plot* ")
    assert " because #it,# of course" in text


def test_spans_that_are_not_in_the_text_are_refused():
    rows = published("wsc")["train"].to_pandas().assign(span2_index=5)
    with pytest.raises(UserError, match="wanted 'it' at word 5, found 'cast' in data row 1"):
        ENCODINGS["wsc"](rows, "task wsc")
    rows = published("copa")["train"].to_pandas().assign(question="why")
    with pytest.raises(UserError, match="wanted cause or effect, found 'why'"):
        ENCODINGS["copa"](rows, "task copa")
    with pytest.raises(UserError, match="wanted column 'word', found text"):
        ENCODINGS["wic"](pd.DataFrame({"text": ["a"]}), "task wic")
