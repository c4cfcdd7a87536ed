"""Labels mean the same in every file format, and a line says what was taken for them."""

import json

import numpy as np
import pandas as pd
import pytest

from simlab import TaskOptions, load_task
from simlab.errors import UserError

FORMATS = ("csv", "tsv", "json", "jsonl", "parquet", "typed.jsonl", "typed.parquet")
CODES = [*range(12)] * 3


def write(path, labels, texts=None, column="label"):
    """Write rows with labels as texts; in a file called ``typed`` with the types of Python."""
    typed = ".typed" in path.name
    texts = texts or [f"text {row}" for row in range(len(labels))]
    labels = labels if typed else [str(label) for label in labels]
    frame = pd.DataFrame({"text": texts, column: labels})
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix in (".csv", ".tsv"):
        frame.to_csv(path, index=False, sep="," if path.suffix == ".csv" else "\t")
    else:
        rows = [json.dumps(row) for row in frame.to_dict("records")]
        lines = path.suffix == ".jsonl"
        path.write_text("\n".join(rows) if lines else f"[{','.join(rows)}]")
    return str(path)


@pytest.mark.parametrize(
    ("labels", "kind", "names"),
    [
        (CODES, None, [str(code) for code in range(12)]),
        ([float(code) for code in CODES], None, [str(code) for code in range(12)]),
        ([code / 5 for code in CODES], None, []),
        ([float(code) for code in CODES], "scores", []),
        ([code / 5 for code in CODES], "classes", [f"{code / 5:g}" for code in range(12)]),
        ([True, False] * 18, None, ["False", "True"]),
        (["b", "1", "a", "10"] * 9, None, ["1", "10", "a", "b"]),
        (["01", "1", "001"] * 9, None, ["001", "01", "1"]),
        (["-1", "00", "01"] * 9, None, ["-1", "00", "01"]),
        (["01", "2", "003"] * 9, "scores", []),
    ],
)
def test_kind_and_order_do_not_depend_on_the_file_format(tmp_path, labels, kind, names):
    tasks = [
        load_task(write(tmp_path / f"rows.{suffix}", labels), TaskOptions(labels=kind))
        for suffix in FORMATS
    ]
    for suffix, task in zip(FORMATS, tasks, strict=True):
        assert [*task.label_names] == names, suffix
        assert task.heldout.labels.tolist() == tasks[0].heldout.labels.tolist(), suffix
        rows = [int(row.removeprefix("row-")) for row in task.train.ids]
        if not names:
            assert task.train.labels.tolist() == [float(labels[row]) for row in rows]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_a_folder_of_files_has_the_classes_of_a_file(tmp_path, suffix):
    labels = ["01", "1", "001"] * 9
    texts = [f"{row:03}" for row in range(27)]
    for column in ("label", "stars", "mine"):
        write(tmp_path / f"train.{suffix}", labels, texts, column)
        chosen = TaskOptions(label_column=column if column == "mine" else None)
        task = load_task(str(tmp_path), chosen)
        assert task.label_names == ("001", "01", "1")
        assert {*task.train.texts, *task.heldout.texts} == {*texts}


def test_scores_have_to_be_numbers(tmp_path):
    with pytest.raises(UserError, match=r"labels='scores': wanted numbers, found 'b' in .* 2$"):
        load_task(write(tmp_path / "rows.csv", [1, "b", 1]), TaskOptions(labels="scores"))
    with pytest.raises(UserError, match=r"labels='score' \(did you mean 'scores'\?\)"):
        TaskOptions(labels="score")
    with pytest.raises(UserError, match=r"labels='scores': .* found task rt, whose columns are"):
        load_task("rt", TaskOptions(labels="scores"))


def test_rows_labelled_minus_one_beside_codes_have_no_label(tmp_path):
    labels = [0, 1, -1, 1, 0, -1] * 5
    path = write(tmp_path / "rows.csv", labels)
    task = load_task(path)
    assert task.label_names == ("0", "1")
    assert len(task.train) + len(task.heldout) == 20
    assert "left out: 10 labelled -1" in task.taken
    assert load_task(path, TaskOptions(labels="classes")).label_names == ("-1", "0", "1")
    for signs in ([-1, 1] * 9, [-2, -1, 0, 1, 2] * 5):  # not codes
        assert load_task(write(tmp_path / "signs.csv", signs)).label_names[0] == str(min(signs))


def test_a_line_says_which_rows_and_classes_are_there(tmp_path, capsys):
    texts = [f"text {row}" for row in range(60)]
    texts += [text.upper() for text in texts[:30]]
    labels = np.array([0, 1] * 30 + [1] * 30)
    labels[59] = 2
    task = load_task(write(tmp_path / "rows.csv", labels.tolist(), texts))
    assert (len(task.train), len(task.heldout)) == (48, 12)  # a fifth of the different texts
    assert task.taken == (
        "task rows: 3 classes (0, 1, 2) in 48 training and 12 held-out rows (\x02"
        '{"name": "labels", "step": "", "value": "scores"}\x03 takes the numbers as scores); '
        f"no {'held-out' if 2 in task.train.labels else 'training'} row of 2; "
        "left out: 30 repeating an earlier text (15 with another label)"
    )
    task.note_taken()
    task.note_taken()
    said = capsys.readouterr().err
    assert said.count("note: task rows") == 1
    assert "(labels='scores' takes" in said
    scores = load_task(write(tmp_path / "half.csv", [0.5, 1, 2.5, 3] * 5))
    assert scores.taken == "task half: scores from 0.5 to 3 in 16 training and 4 held-out rows"
