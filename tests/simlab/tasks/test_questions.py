"""MultiRC: a question has several answers, each of which is right or not."""

import json

import datasets
import numpy as np
import pytest

from simlab import TaskOptions, load_task
from simlab.errors import UserError
from simlab.models.evaluate import heldout_metrics, metric_columns
from simlab.tasks import Examples, Task
from simlab.tasks.task import score
from support.lab.taskrows import published, write_published

# Three questions of two paragraphs: (paragraph, question), the labels, and predictions of them.
PLACES = [(0, 0)] * 3 + [(0, 1)] * 2 + [(1, 0)]
LABELS = np.array([1, 0, 1, 0, 1, 1])
PREDICTIONS = np.array([1, 0, 1, 1, 1, 0])
QUESTIONS = np.array([7, 7, 7, 2, 2, 5])


def write(folder, places, split="validation"):
    """Write MultiRC with a row for each place in the held-out split."""
    splits = {name: table.to_pandas() for name, table in published("multirc").items()}
    rows = splits["train"].iloc[[0] * len(places)].reset_index(drop=True)
    numbers = [{"paragraph": p, "question": q, "answer": a} for a, (p, q) in enumerate(places)]
    texts = [f"held out {number}" for number in range(len(places))]
    labels = [number % 2 for number in range(len(places))]
    splits[split] = rows.assign(idx=numbers, answer=texts, label=labels)
    tables = {n: datasets.Dataset.from_pandas(t, preserve_index=False) for n, t in splits.items()}
    return f"multirc:{write_published(folder / 'multirc', 'multirc', tables)}"


def task_of(questions, labels=LABELS):
    """A task whose held-out rows answer questions."""
    names = tuple(f"row-{row}" for row in range(len(labels)))
    examples = Examples(names, names, names, labels, questions=questions)
    return Task("multirc", examples, examples, ("no", "yes"), ("f1", "exact_match", "accuracy"))


def logits_of(predictions):
    return np.stack([1.0 - predictions, predictions], 1)


def test_scores_by_hand():
    # Question 7 is right in all answers, 2 and 5 are not. Of four answers said to be right three
    # are, and of four right ones three are said to be.
    assert score("exact_match", LABELS, PREDICTIONS, QUESTIONS) == 1 / 3
    assert score("f1", LABELS, PREDICTIONS, QUESTIONS) == pytest.approx(3 / 4)
    found = heldout_metrics(logits_of(PREDICTIONS), task_of(QUESTIONS))
    assert found == pytest.approx({"f1": 3 / 4, "exact_match": 1 / 3, "accuracy": 4 / 6})


def test_a_question_is_its_paragraph_and_its_number(tmp_path):
    heldout = load_task(write(tmp_path, PLACES)).heldout
    numbers = heldout.questions.tolist()
    place = {name: PLACES[int(name.rpartition("-")[2])] for name in heldout.ids}
    pairs = {(place[name], number) for name, number in zip(heldout.ids, numbers, strict=True)}
    assert len(pairs) == len({p for p, _ in pairs}) == len({n for _, n in pairs}) == 3


@pytest.mark.parametrize("seed", range(2))
def test_a_size_keeps_whole_questions(tmp_path, seed):
    places = [(0, number // 3) for number in range(30)]
    name = write(tmp_path, places)
    heldout = load_task(name, TaskOptions(heldout_size=10, split_seed=seed)).heldout
    every = load_task(name, TaskOptions(split_seed=seed)).heldout
    assert np.unique(heldout.questions, return_counts=True)[1].tolist() == [3, 3, 3]
    assert heldout.ids == every.ids[:9]
    changes = np.count_nonzero(np.diff(every.questions))
    assert (len(every), changes) == (30, 9)
    other = load_task(name, TaskOptions(split_seed=seed + 1)).heldout
    assert other.ids != every.ids


def test_a_size_below_a_question_and_rows_without_numbers_are_refused(tmp_path):
    name = write(tmp_path, [(0, 0)] * 4 + [(0, 1)] * 4)
    wanted = "heldout_size: wanted at least 4 rows, all answers of the first question, found 3"
    with pytest.raises(UserError, match=wanted):
        load_task(name, TaskOptions(heldout_size=3))
    splits = {n: table.remove_columns("idx") for n, table in published("multirc").items()}
    bare = write_published(tmp_path / "bare", "multirc", splits)
    with pytest.raises(UserError, match="wanted column 'idx', found"):
        load_task(f"multirc:{bare}")


def test_intervals_draw_whole_questions():
    # Ten questions of ten answers each, all right or all wrong: the rows are ten draws of a coin.
    labels, questions = np.ones(100, int), np.arange(100) // 10
    predictions = (questions < 5).astype(int)
    columns = metric_columns("accuracy", 0.5, predictions, labels, questions)
    assert json.loads(columns["resampling"]) == {"questions": 100, "seed": 0}
    assert 0.5 - columns["low"] == pytest.approx(1.96 * 0.5 / np.sqrt(10), rel=0.25)
    exact = metric_columns("exact_match", 0.5, predictions, labels, questions)
    assert exact["low"] == pytest.approx(columns["low"])
