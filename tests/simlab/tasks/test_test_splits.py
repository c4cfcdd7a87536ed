"""Test splits without labels: which texts they give, and that maps are judged on them."""

import datasets
import pytest

from simlab import TaskOptions, extract, load_representations, load_task
from simlab.errors import UserError
from simlab.tasks import TASKS, load_test
from simlab.tasks.corpus import Corpus
from support.lab.taskrows import FORMATS, HELDOUT, published, write_published


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    parent = tmp_path_factory.mktemp("tasks")
    return {name: write_published(parent / name, name) for name in FORMATS}


@pytest.mark.parametrize("name", [name for name, spec in TASKS.items() if spec.test])
def test_hidden_labels_are_not_read(folders, name):
    if TASKS[name].test not in published(name):
        with pytest.raises(UserError, match="test"):
            load_test(f"{name}:{folders[name]}")
        return
    found = load_test(f"{name}:{folders[name]}")
    assert isinstance(found, Corpus)
    assert found.name == name
    assert 1 <= len(found.examples) <= 2 * HELDOUT
    assert not found.examples.labels.any()
    assert all(one.startswith(TASKS[name].test) for one in found.examples.ids)
    task = load_task(f"{name}:{folders[name]}")
    for split in (task.train, task.heldout):
        assert split.text_fingerprint != found.examples.text_fingerprint


def test_texts_of_other_splits_are_left_out(tmp_path):
    splits = published("mrpc")
    rows = {split: table.to_list() for split, table in splits.items()}
    pair = {"sentence1": "The FILM", "sentence2": "is  bright"}
    rows["train"][0] |= pair
    rows["validation"][0] |= {"sentence1": "dull", "sentence2": "music"}
    rows["test"][1] |= {"sentence1": "the film ", "sentence2": "IS bright"}
    rows["test"][2] |= {"sentence1": "dull", "sentence2": "music"}
    rows["test"][3] |= {"sentence1": "the film", "sentence2": "is dull"}
    tables = {
        split: datasets.Dataset.from_list(some, features=splits[split].features)
        for split, some in rows.items()
    }
    folder = write_published(tmp_path / "mrpc", "mrpc", tables)
    assert load_test(f"mrpc:{folder}").examples.ids == ("test-0", "test-3", "test-4", "test-5")


@pytest.mark.parametrize("name", ["yelp", "rt", "stsb", "reviews.csv", "hub:a/b"])
def test_data_without_a_test_split_of_their_own_are_refused(name):
    wanted = r"^split='test': wanted a task with a test split of its own \(cola, .*\), found "
    with pytest.raises(UserError, match=f"{wanted}{name}$"):
        load_test(name)


def test_the_rows_of_a_test_split_are_extracted(tmp_path, folders, tiny_bert):
    task = f"mrpc:{folders['mrpc']}"
    out = extract(tiny_bert, task, tmp_path / "rows", split="test", label="a").path
    stored = load_representations(out)
    assert stored.manifest["n"] == len(load_test(task).examples)
    assert (stored.manifest["task"], stored.manifest["split"]) == ("mrpc", "test")
    with pytest.raises(UserError, match="label_column='x'"):
        extract(tiny_bert, task, tmp_path / "no", split="test",
                task_options=TaskOptions(label_column="x"))  # fmt: skip
