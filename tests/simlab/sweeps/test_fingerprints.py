"""Which revision of a data set of the hub a sweep takes: what the cache held when it began."""

import shutil

import pytest
from datasets import config
from huggingface_hub import constants

from simlab import Sweep
from simlab.errors import UserError
from simlab.store import files
from simlab.sweeps import steps
from simlab.sweeps.sources import Sources
from simlab.tasks.hub import HubData, load_data
from simlab.tasks.specs import COPIES
from support.hubserver import commit_of
from support.lab.hubs import publish_copy, publish_data
from support.lab.inline import run
from support.lab.taskrows import HELDOUT, published

SUPER_GLUE = "aps/super_glue"
GLUE, RTE = "nyu-mll/glue", "hub:nyu-mll/glue:rte"


def move_main(hub):
    """Let `main` of GLUE have fewer held-out rows of RTE, and the branch ``first`` those before."""
    folder = hub.folder(GLUE, "datasets")
    shutil.copytree(folder, hub.folder(GLUE, "datasets", "first"))
    shutil.rmtree(folder)
    rows = published("rte")
    rows["validation"] = rows["validation"].select(range(4))
    return publish_data(hub, GLUE, "rte", "rte", rows)


def forget():
    """Delete the caches of the clients, and forget the tasks that this process has read."""
    steps._load_task.cache_clear()
    shutil.rmtree(constants.HF_HUB_CACHE)
    shutil.rmtree(config.HF_DATASETS_CACHE)


def publish_rte(hub):
    """Publish RTE; return its commit."""
    return publish_data(hub, GLUE, "rte", "rte")


def sweep_of(tiny_bert, kind, task="rte"):
    """A sweep that extracts rows of the held-out examples of a task, and compares them."""
    return Sweep({"models": [str(tiny_bert.path)], "tasks": [task], "extract": {"kind": kind}})


def extracted(sweep, out):
    """The keys of extractions and the number of rows that all grids have."""
    keys = {job.key for job in sweep.plan(out).jobs if job.kind == "extract"}
    return keys, set(sweep.results(out)["n"])


def move_copy(hub):
    """Let the hub's copy of CB have fewer held-out rows, and the branch ``before`` those before."""
    place = hub.folder(SUPER_GLUE, "datasets", COPIES)
    shutil.copytree(place, hub.folder(SUPER_GLUE, "datasets", "before"))
    rows = published("cb")["validation"].select(range(4))
    rows.to_parquet(place / "cb" / "validation" / "0000.parquet")
    return commit_of(place)


@pytest.mark.parametrize(
    "task", [f"{RTE}@main", "cb", *(pytest.param(n, marks=pytest.mark.deep) for n in ("rte", RTE))]
)
def test_rows_of_two_commits_are_not_mixed(hub, tmp_path, tiny_bert, task):
    """SuperGLUE is read from the hub's copy in Parquet, whose branch moves with the data."""
    is_copy = task == "cb"
    old = publish_copy(hub, SUPER_GLUE, "cb", "cb") if is_copy else publish_rte(hub)
    sweep, out = sweep_of(tiny_bert, "mean", task), tmp_path / "out"
    assert run(sweep, out).failed == ()
    first = extracted(sweep, out)
    assert first[1] == {HELDOUT}
    new = move_copy(hub) if is_copy else move_main(hub)
    assert new != old
    forget()
    hub.log.clear()
    more = sweep_of(tiny_bert, ["mean", "cls"], task)
    report = run(more, out)
    assert (report.failed, report.done["extract"]) == ((), 1)  # the rows of kind cls alone
    keys, counts = extracted(more, out)
    assert (keys > first[0], counts) == (True, {HELDOUT})
    assert hub.asked("GET", old)
    assert not hub.asked("GET", new)
    other = tmp_path / "other"
    assert run(sweep, other).failed == ()
    assert extracted(sweep, other)[1] == {4}
    assert not extracted(sweep, other)[0] & keys
    if is_copy:
        shutil.rmtree(hub.folder(SUPER_GLUE, "datasets", "before"))
        forget()
        last = sweep_of(tiny_bert, ["mean", "cls", "word-last"], task)
        with pytest.raises(UserError, match=rf"task cb at commit {old}: .* Revision Not Found"):
            run(last, out)


def test_the_commit_is_in_the_key(hub, tmp_path):
    rte = publish_rte(hub)
    assert Sources().task("rte") == {"hub": RTE}  # only shown: nothing is in the cache
    load_data(HubData.parse(RTE), "task rte", "data")
    pinned = {"hub": RTE, "revision": rte}
    memory = tmp_path / "fingerprints.json"
    prints = Sources(memory)
    names = ("rte", RTE, f"{RTE}@{rte}")
    assert [prints.task(name) for name in names] == [pinned] * 3
    prints.save()
    assert files.read_json(memory)["revisions"] == {RTE: rte}
    new = move_main(hub)
    load_data(HubData.parse(f"{RTE}@{new}"), "task rte", "data")
    forget()
    load_data(HubData.parse(RTE), "task rte", "data")  # another program has asked for main
    assert Sources(memory).task("rte") == pinned
    assert Sources().task("rte") == {"hub": RTE, "revision": new}
    assert Sources().task(f"{RTE}@{rte}") == pinned
    assert commit_of(hub.folder(GLUE, "datasets", "first")) == rte


def test_a_task_of_a_package_is_no_data_set_of_the_hub():
    assert Sources().task("digits") == {"package": "scikit-learn"}
    assert "revision" not in Sources().task("rt")
