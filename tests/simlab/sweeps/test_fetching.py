"""With `max_disk`, steps of a training are downloaded one ahead of their jobs, and deleted."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from huggingface_hub import constants

from simlab import Sweep
from simlab.errors import UserError
from simlab.models.hub import find_whole
from simlab.models.revisions import announce
from simlab.models.sources import resolve
from simlab.sweeps.fetching import FETCHED
from simlab.sweeps.fingerprints import Fingerprints
from support.hubserver import Fault
from support.lab.hubs import environment, publish, publish_data
from support.lab.inline import InlineEngine
from support.lab.runs import save_step

NAME = "someone/tiny-bert"
STEPS = (0, 1, 2, 4)
HOW = {"durable": False, "figures": False}


@pytest.fixture
def run(hub, tmp_path, tiny_bert):
    """A run of four steps on the hub; return the name of each step at its commit."""
    publish_data(hub, "nyu-mll/glue", "rte", "rte")
    names = {}
    for step in STEPS:
        folder = tmp_path / f"step{step}"
        save_step(tiny_bert.path, folder, 0, step)
        names[step] = f"{NAME}@{publish(hub, NAME, folder, f'step{step}')}"
    return names


def study(**more):
    models = [{"name": NAME, "revisions": "step{0,1,2,4}"}]
    grids = {"between": "steps", "estimator": "biased"}
    extract = [{"kind": kind, "limit": 4} for kind in ("mean", "cls")]
    return {"models": models, "tasks": ["rte"], "extract": extract, "grids": grids, **more}


def in_cache():
    folder = Path(constants.HF_HUB_CACHE) / "models--someone--tiny-bert" / "snapshots"
    return {f"{NAME}@{one.name}" for one in folder.glob("*") if find_whole(f"{NAME}@{one.name}")}


class Watched(InlineEngine):
    """An engine that notes the revisions in the cache when a job begins, and those it loads."""

    def __init__(self, kills=None):
        super().__init__()
        self.cached, self.loaded, self.kills = [], [], kills

    def submit(self, order):
        self.cached.append(in_cache())
        if (name := order.job.hints.get("model")) is not None:
            self.loaded.append(name)
            assert name in self.cached[-1]
        if len(self.loaded) == self.kills:
            raise KeyboardInterrupt
        super().submit(order)


class Ahead(Watched):
    """An engine whose jobs take as long as the download of the next revision."""

    def collect(self, seconds):
        started = time.monotonic()
        extracts = len(self.loaded) < 2 * len(STEPS)
        while self.answers and extracts and time.monotonic() - started < 1 and len(in_cache()) < 2:
            time.sleep(0.05)
        self.cached.append(in_cache())
        return super().collect(seconds)


def rows(folder):
    sweep = Sweep.open(folder)
    return sweep.results(folder).drop(columns="source", errors="ignore")


def largest(run):
    return max(announce(name).bytes for name in run.values())


def test_two_revisions_are_there_at_most_and_the_rows_are_the_same(run, hub, tmp_path):
    room = 3 * largest(run)  # two, and the rows of the layers
    engine = Ahead()
    report = Sweep(study(max_disk=room, keep="results")).run(tmp_path / "a", engine=engine, **HOW)
    assert (report.failed, report.waiting) == ((), 0)
    assert max(map(len, engine.cached)) == 2
    # Both kinds of a revision are extracted while it is there.
    assert list(dict.fromkeys(engine.loaded)) == [run[step] for step in STEPS]
    assert engine.loaded[::2] == engine.loaded[1::2]
    assert in_cache() == set()
    assert list((tmp_path / "a" / FETCHED).iterdir()) == []
    assert len(hub.asked("GET", "model.safetensors")) == len(STEPS)
    hub.log.clear()
    again = Sweep(study(max_disk=room, keep="results")).run(tmp_path / "a", engine=engine, **HOW)
    assert (dict(again.done), hub.log) == ({}, [])
    Sweep(study()).run(tmp_path / "b", engine=InlineEngine(), **HOW)
    assert in_cache() == {*run.values()}
    assert rows(tmp_path / "a").equals(rows(tmp_path / "b"))


def test_a_revision_that_was_there_before_stays(run, tmp_path):
    resolve(f"{NAME}@step1")
    room = 3 * largest(run)
    Sweep(study(max_disk=room)).run(tmp_path / "a", engine=Watched(), **HOW)
    assert in_cache() == {run[1]}


def test_a_sweep_that_was_stopped_goes_on_and_cleans_up(run, hub, tmp_path):
    sweep = Sweep(study(max_disk=3 * largest(run)))
    with pytest.raises(KeyboardInterrupt):
        sweep.run(tmp_path / "a", engine=Watched(kills=3), **HOW)
    assert run[1] in in_cache()
    report = sweep.run(tmp_path / "a", engine=Watched(), **HOW)
    assert (report.failed, report.waiting) == ((), 0)
    assert in_cache() == set()
    assert list((tmp_path / "a" / FETCHED).iterdir()) == []


def test_equal_weights_are_told_before_they_are_downloaded(run, hub, tmp_path, capfd):
    shutil.copytree(hub.folder(NAME, revision="step4"), hub.folder(NAME, revision="step8"))
    (hub.folder(NAME, revision="step8") / "added_tokens.json").write_text("{}")
    content = study(max_disk=3 * largest(run))
    content["models"][0]["revisions"] = "step{0,4,8}"
    hub.log.clear()
    found = []

    class First(Watched):
        def submit(self, order):
            if not found:
                found.extend([len(hub.asked("GET", "model.safetensors")), capfd.readouterr().err])
            super().submit(order)

    assert Sweep(content).run(tmp_path / "a", engine=First(), **HOW).failed == ()
    assert found[0] == 1  # of step 0
    assert "2 steps have the weights of another step: tiny-bert: steps 4, 8" in found[1]


def test_the_announced_weights_are_those_of_the_files(run):
    prints = Fingerprints()
    prints.announce(f"{NAME}@step1")
    known = prints.weights(run[1])
    resolve(f"{NAME}@step1")
    assert Fingerprints().weights(run[1]) == known
    assert prints.pinned(f"{NAME}@step1") == run[1]
    folder = find_whole(run[1])
    assert prints.announced_bytes(run[1]) == sum(one.stat().st_size for one in folder.iterdir())


def test_a_bound_that_is_smaller_than_a_revision_is_one_line(run, tmp_path):
    with pytest.raises(UserError, match=r"^sweep, key max_disk: wanted at least .* takes alone"):
        Sweep(study(max_disk=1000)).run(tmp_path / "a", engine=Watched(), **HOW)
    assert in_cache() == set()


def test_room_for_one_revision_is_enough(run, hub, tmp_path):
    """Nothing is downloaded ahead, and nothing twice."""
    room = int(1.9 * largest(run))
    engine = Watched()
    report = Sweep(study(max_disk=room, keep="results")).run(tmp_path / "a", engine=engine, **HOW)
    assert (report.failed, report.waiting) == ((), 0)
    assert max(map(len, engine.cached)) == 1


def test_a_hub_that_fails_ends_the_sweep_with_one_line_and_the_next_goes_on(run, hub, tmp_path):
    sweep = Sweep(study(max_disk=3 * largest(run)))
    commit = run[2].partition("@")[2]
    hub.faults.append(Fault(f"{commit}/model.safetensors", status=404, code="EntryNotFound"))
    with pytest.raises(UserError, match=f"^model {run[2]}"):
        sweep.run(tmp_path / "a", engine=Watched(), **HOW)
    hub.faults.clear()
    report = sweep.run(tmp_path / "a", engine=Watched(), **HOW)
    assert (report.failed, report.waiting) == ((), 0)


@pytest.mark.slow
def test_the_command_with_two_processes_downloads_and_deletes(run, hub, tmp_path):
    """Workers find each revision whole in the cache; the last one is gone at the end."""
    lines = [
        f'models = [{{ name = "{NAME}", revisions = "step{{0,1,2,4}}" }}]',
        'tasks = ["rte"]\nkeep = "results"',
        f"max_disk = {4 * largest(run)}",
        'extract = [{ kind = "mean", limit = 4 }, { kind = "cls", limit = 4 }]',
        'grids = { between = "steps", estimator = "biased" }',
    ]
    (tmp_path / "study.toml").write_text("\n".join(lines))
    command = ("sweep", tmp_path / "study.toml", "--out", tmp_path / "out", "--no-figures")
    hub.log.clear()
    home = tmp_path / "other home"
    done = subprocess.run(
        [sys.executable, "-m", "simlab.cli", *map(str, command), "--workers", "2"],
        env=environment(hub, home),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(hub.asked("GET", "resolve", "model.safetensors")) == len(STEPS)
    assert not list((home / "hub").glob("models--*/snapshots/*"))
    assert list((tmp_path / "out" / FETCHED).iterdir()) == []
