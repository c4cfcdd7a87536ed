"""Columns of data sets without a name of their own: no column is left unread without a word."""

import pandas as pd
import pytest

from simlab import TaskOptions, load_task
from simlab.errors import UserError
from simlab.tasks import hub, load_corpus
from simlab.tasks.load import guess_columns
from simlab.tasks.specs import ENCODINGS, QUESTIONS
from support.lab.taskrows import published, write_published

ROWS = 40


def texts(name):
    return [f"{name} of row {row}" for row in range(ROWS)]


def table(**columns):
    return pd.DataFrame({"label": [row % 2 for row in range(ROWS)], **columns})


def test_usual_names_are_read_and_the_columns_left_are_named(capsys):
    rows = table(text=texts("text"), idx=range(ROWS), passage=texts("passage"))
    chosen = guess_columns(rows, TaskOptions(), "task some/data")
    assert (chosen.text_column, chosen.pair_column, chosen.label_column) == ("text", None, "label")
    note = "note: task some/data: columns that are not read: 'idx', 'passage'\n"
    assert capsys.readouterr().err == note
    guess_columns(rows, TaskOptions(), "task some/data")
    guess_columns(rows, TaskOptions(text_column="passage"), "task other/data")
    assert capsys.readouterr().err == ""
    pair = table(sentence1=texts("first"), sentence2=texts("second"), word=["film"] * ROWS)
    chosen = guess_columns(pair, TaskOptions(), "task wic")
    assert (chosen.text_column, chosen.pair_column) == ("sentence1", "sentence2")
    assert "'word'" in capsys.readouterr().err


@pytest.mark.parametrize("first, second", [("question", "passage"), ("premise", "choice1")])
def test_half_of_a_pair_is_not_guessed(tmp_path, first, second):
    rows = pd.DataFrame({first: texts("q"), second: texts("p"), "label": [0, 1] * 20})
    rows.to_parquet(tmp_path / "train.parquet")
    for load in (load_task, load_corpus):
        with pytest.raises(UserError, match="wanted column 'text'"):
            load(str(tmp_path))
    task = load_task(str(tmp_path), TaskOptions(text_column=first, pair_column=second))
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
