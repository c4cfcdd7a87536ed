"""Data sets of the hub: revisions, the cache, and faults of the network."""

import time

import pytest

from simlab import load_task
from simlab.errors import UserError
from simlab.tasks import TASKS
from simlab.tasks.hub import HubData, cached_commit, load_data
from simlab.tasks.specs import COPIES
from support.hubserver import Fault
from support.lab.commandline import check_refused
from support.lab.hubs import publish_copy, publish_data
from support.lab.taskrows import published, write_published

GLUE = "nyu-mll/glue"


@pytest.fixture
def glue(hub):
    """GLUE on the hub, of which two tasks are there."""
    for task in ("cola", "rte"):
        publish_data(hub, GLUE, task, task)
    return hub


def of_clients(log):
    """The requests, without those that ask who is asking."""
    return [line for line in log if "agent-harnesses" not in line]


def test_a_named_task_is_asked_for_once(glue, tmp_path):
    task = load_task("cola")
    folder = write_published(tmp_path / "cola", "cola")
    assert task.heldout.fingerprint == load_task(f"cola:{folder}").heldout.fingerprint
    glue.log.clear()
    assert load_task("cola").train.fingerprint == task.train.fingerprint
    assert of_clients(glue.log) == []


@pytest.mark.slow
def test_every_named_task_of_the_hub_has_the_rows_of_its_folder(hub, tmp_path):
    folders = {}
    for name, spec in TASKS.items():
        if spec.hub not in folders:  # MNLI is two tasks
            data = HubData.parse(spec.hub)
            publish = publish_copy if data.revision == COPIES else publish_data
            publish(hub, data.path, data.config or "", name)
            folders[spec.hub] = write_published(tmp_path / name, name)
    for name, spec in TASKS.items():
        # Tasks of a package are read from the hub where its data set is named.
        found = load_task(f"hub:{spec.hub}" if spec.offline else name)
        wanted = load_task(f"{name}:{folders[spec.hub]}")
        assert (found.name, found.label_names, found.all_metrics) == (
            *(name, spec.labels, spec.metrics),
        )
        assert found.train.fingerprint == wanted.train.fingerprint, name
        assert found.heldout.fingerprint == wanted.heldout.fingerprint, name


def test_a_data_set_without_a_card_and_one_with_a_single_configuration(hub):
    publish_data(hub, "a/plain", task="imdb")
    (hub.folder("a/plain", "datasets") / "README.md").unlink()
    publish_data(hub, "a/single", "only", "imdb")
    for name in ("hub:a/plain", "a/single"):
        first = load_task(name)
        hub.log.clear()
        assert load_task(name).heldout.fingerprint == first.heldout.fingerprint
        assert of_clients(hub.log) == []


def test_the_default_of_several_configurations_is_read_from_the_cache(hub):
    publish_data(hub, "a/two", "first", "imdb")
    publish_data(hub, "a/two", "second", "rte")
    card = hub.folder("a/two", "datasets") / "README.md"
    named = "- config_name: second\n"
    card.write_text(card.read_text().replace(named, f"{named}  default: true\n"))
    first = load_task("hub:a/two")
    assert first.is_pair
    hub.log.clear()
    assert load_task("hub:a/two").heldout.fingerprint == first.heldout.fingerprint
    assert of_clients(hub.log) == []


def test_a_revision_is_that_revision_or_an_error(glue, monkeypatch):
    old = publish_data(glue, "a/set", task="imdb")
    data = HubData.parse("hub:a/set")
    load_data(data, "task", "data")
    assert cached_commit(data) == old
    rows = published("imdb")
    rows["test"] = rows["test"].select(range(3))
    folder = glue.folder("a/set", "datasets")
    for file in (folder / "data").iterdir():
        file.unlink()
    (folder / "data").rmdir()
    new = publish_data(glue, "a/set", task="imdb", splits=rows)
    assert new != old
    assert len(load_task("hub:a/set").heldout) == 6  # what the cache calls main
    assert len(load_task(f"hub:a/set@{new}").heldout) == 3
    assert len(load_task(f"hub:a/set@{old}").heldout) == 6
    glue.faults = [Fault(".", status=503)]
    # The client would wait between its tries, for more than a minute in all.
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(min(seconds, 0.01)))
    with pytest.raises(UserError, match="found ConnectionError: the network failed, and"):
        load_task(f"hub:a/set@{'1' * 40}")
    assert cached_commit(HubData.parse(f"hub:a/set@{new}")) == new


def test_a_missing_configuration_is_named(glue):
    load_task("cola")
    with pytest.raises(UserError, match="found: Config name is missing"):
        load_task(f"hub:{GLUE}")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("/api/datasets/", status=401, code="RepoNotFound"), "found "),
        (Fault("/api/datasets/", status=429), "429"),
        (Fault("/api/datasets/", drop=0), "found "),
        (Fault("GET .*parquet", short=100), "found "),
    ],
    ids=["401", "429", "drop", "short"],
)
def test_a_fault_is_one_line_and_the_next_run_heals(glue, simcore, tmp_path, fault, words):
    glue.faults = [fault]
    model = "minilm"
    refused = simcore("extract", model, "cola", "--out", tmp_path / "out")
    check_refused(refused, "task cola: wanted the data set nyu-mll/glue:cola", words)
    glue.faults = []
    assert len(load_task("cola").heldout) == 6


def test_the_hub_s_copy_in_parquet_is_a_data_set(hub):
    commit = publish_copy(hub, "aps/super_glue", "cb", "cb")
    publish_copy(hub, "aps/super_glue", "wsc.fixed", "wsc")
    task = load_task("cb")
    assert task.label_names == ("entailment", "contradiction", "neutral")
    assert task.is_pair
    assert len(load_task("wsc").heldout) == 6
    hub.log.clear()
    name = "hub:aps/super_glue:cb@refs/convert/parquet"
    assert load_task(name).heldout.fingerprint == task.heldout.fingerprint
    assert of_clients(hub.log) == []
    assert cached_commit(HubData.parse(name)) == cached_commit(HubData.of_task("cb")) != commit
    with pytest.raises(UserError, match=r"found: no configuration 'default' among cb, wsc\.fixed"):
        load_task("hub:aps/super_glue@refs/convert/parquet")


def test_cosmos_qa_is_read_from_the_copy_beside_its_script(hub):
    """The data set has one configuration, which its name does not say."""
    name = "allenai/cosmos_qa"
    script = hub.folder(name, "datasets") / "cosmos_qa.py"
    script.parent.mkdir(parents=True)
    script.write_text("raise AssertionError")
    with pytest.raises(UserError, match=f"no longer supported, .* such as hub:{name}@{COPIES}"):
        load_task(f"hub:{name}")
    publish_copy(hub, name, "", "cosmosqa")
    task = load_task("cosmosqa")
    assert len(task.heldout) == 6
    assert task.is_multiple_choice
    assert load_task(f"hub:{name}@{COPIES}").heldout.fingerprint == task.heldout.fingerprint
