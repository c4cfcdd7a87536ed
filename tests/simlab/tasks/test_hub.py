"""Hub data sets: customary columns, held-out splits, hidden labels. No connection is needed."""

import datasets
import pytest

from simlab import TaskOptions, load_task
from simlab.errors import UserError
from simlab.tasks import hub


def split(count, offset=0, label=None):
    """`count` labelled pairs in the hub's own format."""
    features = datasets.Features(
        {
            "premise": datasets.Value("string"),
            "hypothesis": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["no", "yes"]),
        }
    )
    rows = {
        "premise": [f"premise {offset + row}" for row in range(count)],
        "hypothesis": [f"hypothesis {offset + row}" for row in range(count)],
        "label": [row % 2 if label is None else label for row in range(count)],
    }
    return datasets.Dataset.from_dict(rows, features=features)


@pytest.fixture
def served(monkeypatch):
    """Serve chosen splits in place of a download."""

    def serve(**splits):
        monkeypatch.setattr(hub, "download", lambda name: splits)

    return serve


def test_validation_is_held_out_and_columns_are_guessed(served):
    served(train=split(20), test=split(5, 200), validation=split(6, 100))
    task = load_task("hub:some/pairs", TaskOptions(train_size=10))
    assert task.name == "some/pairs"
    assert task.is_pair
    assert task.label_names == ("no", "yes")
    assert all(example.startswith("validation-") for example in task.heldout.ids)
    assert (len(task.train), len(task.heldout)) == (10, 6)
    assert all(pair.startswith("hypothesis") for pair in task.heldout.pairs)


def test_a_lone_training_split_is_cut(served):
    served(train=split(20))
    task = load_task("some/pairs")
    assert (len(task.train), len(task.heldout)) == (16, 4)
    assert not set(task.train.ids) & set(task.heldout.ids)


def test_rows_that_are_also_held_out_are_not_trained_on(served):
    served(train=split(20), validation=split(6))
    assert len(load_task("some/pairs").train) == 14


def test_hidden_labels_missing_splits_and_columns_are_refused(served):
    served(train=split(20), test=split(5, 100, label=-1))
    with pytest.raises(UserError, match="split 'test', found hidden ones"):
        load_task("some/pairs")
    served(test=split(5))
    with pytest.raises(UserError, match="wanted a split 'train', found test"):
        load_task("some/pairs")
    served(train=split(20))
    with pytest.raises(UserError, match=r"text_column='body': wanted column 'body', found premise"):
        load_task("some/pairs", TaskOptions(text_column="body"))
    train = split(20).rename_column("premise", "body").remove_columns("hypothesis")
    served(train=train)
    words = r"wanted column 'text' \(or another, with text_column\), found .*body"
    with pytest.raises(UserError, match=words):
        load_task("some/pairs")


def test_held_out_labels_that_training_rows_lack_are_refused(served):
    train, heldout = (
        part.cast_column("label", datasets.Value("int64")) for part in (split(8), split(4, 50))
    )
    served(train=train, validation=heldout)
    assert load_task("some/pairs").label_names == ("0", "1")
    served(train=train, validation=heldout.map(lambda row: {"label": row["label"] * 2}))
    with pytest.raises(UserError, match="labels that the training rows have, found '2'"):
        load_task("some/pairs")
