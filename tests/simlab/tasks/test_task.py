"""Tasks: deterministic splits without leakage, columns by name, errors in one line."""

import json

import pandas as pd
import pytest

from simlab import TaskOptions, load_task
from simlab.errors import UserError
from simlab.tasks import encode_labels


@pytest.mark.assets
def test_stsb_holds_out_dev_and_scores_rank_correlation():
    task = load_task("stsb", TaskOptions(train_size=100))
    assert task.is_pair
    assert task.is_regression
    assert len(task.heldout) == 1500
    assert all(example.startswith("dev-") for example in task.heldout.ids)
    assert 0 <= task.heldout.labels.min() < task.heldout.labels.max() <= 5
    assert task.score(task.heldout.labels**3, task.heldout.labels) == pytest.approx(1.0)


@pytest.mark.assets
def test_offline_rows_stay_what_earlier_runs_were_made_of():
    """Fingerprints are keys of finished steps: with new fingerprints all steps would run anew."""
    found = {
        name: [load_task(name).split(split).fingerprint[:12] for split in ("train", "heldout")]
        for name in ("rt", "stsb")
    }
    assert found == {
        "rt": ["b7b7107ae71a", "a578aca2bf66"],
        "stsb": ["5ceb7c4e4830", "30cacf17e65a"],
    }


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_text_may_be_a_list_of_words(tmp_path, suffix):
    path = tmp_path / f"words.{suffix}"

    def load(texts):
        frame = pd.DataFrame({"text": texts, "label": [0, 1] * (len(texts) // 2)})
        if suffix == "jsonl":
            frame.to_json(path, orient="records", lines=True)
        else:
            frame.to_parquet(path)
        return load_task(str(path))

    task = load([["a", "don't"], ["b", "c", "."], ["d"], ["e", "f"]])
    assert {*task.train.texts, *task.heldout.texts} == {"a don't", "b c .", "d", "e f"}
    with pytest.raises(UserError, match="words without spaces, found 'New York'"):
        load([["in", "New York"], ["b"]])


def test_pairs_and_regression_from_a_file(tmp_path):
    rows = [{"a": f"text {i}", "b": f"other {i}", "score": i / 7} for i in range(20)]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    task = load_task(str(path), TaskOptions("a", "b", "score", heldout_size=5))
    assert task.is_pair
    assert task.is_regression
    assert (len(task.train), len(task.heldout)) == (15, 5)


def test_labels_that_are_all_different_are_no_classes():
    with pytest.raises(UserError, match=r"here: wanted classes of several rows, .* 20 labels that"):
        encode_labels(list(range(20)), "here")
    assert len(encode_labels([*range(20), 0], "here")[1]) == 20


def test_labels_that_are_lists_are_refused(tmp_path):
    path = tmp_path / "data.json"
    path.write_text(json.dumps([{"text": f"text {row}", "label": [row % 2]} for row in range(9)]))
    with pytest.raises(UserError, match=r"data\.json: wanted labels that are .* found list"):
        load_task(str(path))


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("text,label\nx,1\ny,0\n", TaskOptions(text_column="body"), "text_column='body': .*text"),
        ("text,label\nx,1\ny,0\n", TaskOptions(label_column="z"), "label_column='z': wanted"),
        ("text,label\nx,1\ny,0\n", TaskOptions(pair_column="z"), "pair_column='z': wanted column"),
        ("text,label\nx,1\n,0\n", TaskOptions(), "'text' wanted a value in every row, found 1"),
        ("text,label\nx,1\ny,1\n", TaskOptions(), "two different labels"),
        ("text,label\nx,1\ny,0\n", TaskOptions(train_size=9), "train_size: wanted 1 to"),
        ("text,label\nx,1\ny,0\n", TaskOptions(heldout_size=9), "heldout_size: wanted 1 to"),
        ("", TaskOptions(), "wanted a csv table"),
        ("text,label\n", TaskOptions(), "wanted rows, found none"),
        ("text,label\nx,1\nX ,0\n", TaskOptions(), "wanted 1 to 0 of 1 different texts"),
        ("text,label\nx,0.5\ny,inf\nz,1\n", TaskOptions(), "finite numbers, found inf .* row 2"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_line(tmp_path, content, options, message):
    path = tmp_path / "data.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        load_task(str(path), options)
    assert "\n" not in str(caught.value)


def test_na_and_null_are_texts(tmp_path):
    path = tmp_path / "words.csv"
    path.write_text("text,label\nNA,1\nnull,0\nNone,1\n")
    task = load_task(str(path))
    assert {*task.train.texts, *task.heldout.texts} == {"NA", "null", "None"}


def test_unknown_task_and_missing_file(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        load_task(str(tmp_path / "none.csv"))
