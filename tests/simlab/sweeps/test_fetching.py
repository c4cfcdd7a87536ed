"""With `max_disk`, jobs download steps of a training, and their outputs go like any other."""

from pathlib import Path

import pytest
from huggingface_hub import constants

from simlab import Sweep
from simlab.errors import UserError
from simlab.models.hub import announce, find_whole
from simlab.models.sources import resolve
from simlab.sweeps.sources import Sources
from support.hubserver import Fault
from support.lab.hubs import publish, publish_data
from support.lab.inline import Inline
from support.lab.inline import run as launch
from support.lab.runs import save_step

NAME = "someone/tiny-bert"
STEPS = (0, 1, 4)


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
    models = [{"name": NAME, "revisions": "step{0,1,4}"}]
    grids = {"between": "steps", "estimator": "biased"}
    extract = [{"kind": kind, "limit": 4} for kind in ("mean", "cls")]
    return {"models": models, "tasks": ["rte"], "extract": extract, "grids": grids, **more}


def in_cache():
    folder = Path(constants.HF_HUB_CACHE) / "models--someone--tiny-bert" / "snapshots"
    return {f"{NAME}@{one.name}" for one in folder.glob("*") if find_whole(f"{NAME}@{one.name}")}


class Watched(Inline):
    """An executor that notes which steps are on the disk when a job begins, and which it loads."""

    def __init__(self, out, kills=None):
        self.out, self.kills = out, kills
        self.there, self.loaded = [], []

    def submit(self, fn, order):
        self.there.append(len(list((self.out / "objects" / "fetch").glob("*/*"))))
        if (name := order.job.hints.get("model")) is not None:
            self.loaded.append(name)
        if len(self.loaded) == self.kills:
            raise KeyboardInterrupt
        return super().submit(fn, order)


def rows(folder):
    sweep = Sweep.open(folder)
    return sweep.results(folder).drop(columns="source", errors="ignore")


def largest(run):
    return max(announce(name).bytes for name in run.values())


def test_one_step_is_there_at_a_time_and_the_rows_are_the_same(run, hub, tmp_path):
    out, room = tmp_path / "a", int(1.9 * largest(run))
    engine, sweep = Watched(out), Sweep(study(max_disk=room, keep="results"))
    report = launch(sweep, out, engine)
    assert (report.failed, report.waiting, report.done["fetch"]) == ((), 0, len(STEPS))
    assert max(engine.there) == 1
    # Both kinds of a step are extracted while it is there.
    assert list(dict.fromkeys(engine.loaded)) == [run[step] for step in STEPS]
    assert engine.loaded[::2] == engine.loaded[1::2]
    assert list((out / "objects" / "fetch").glob("*/*")) == []
    assert in_cache() == set()
    assert len(hub.asked("GET", "model.safetensors")) == len(STEPS)
    hub.log.clear()
    again = launch(Sweep(study(max_disk=room, keep="results")), out, engine)
    assert (dict(again.done), hub.log) == ({}, [])
    launch(Sweep(study()), tmp_path / "b")
    assert in_cache() == {*run.values()}
    assert rows(out).equals(rows(tmp_path / "b"))
    keys = [{j.key for j in Sweep.open(f).plan(f).jobs} for f in (out, tmp_path / "b")]
    assert keys[0] > keys[1]  # the jobs that download are more, and no other key is another


def test_a_sweep_that_is_stopped_and_whose_hub_fails_goes_on_and_cleans_up(run, hub, tmp_path):
    """A step that was in the cache before is read there, and stays."""
    resolve(f"{NAME}@step1")
    out, sweep = tmp_path / "a", Sweep(study(max_disk=3 * largest(run)))
    with pytest.raises(KeyboardInterrupt):
        launch(sweep, out, Watched(out, kills=2))
    assert len(list((out / "objects" / "fetch").glob("*/*"))) == 1
    commit = run[4].partition("@")[2]
    hub.faults.append(Fault(f"{commit}/model.safetensors", status=404, code="EntryNotFound"))
    report = launch(sweep, out, Watched(out))
    ((title, error),) = report.failed
    assert (title, error.startswith(f"model {run[4]}")) == (f"fetch {run[4]}", True)
    fetched = len(hub.asked("GET", "model.safetensors"))
    hub.faults.clear()
    report = launch(sweep, out, Watched(out))
    assert (report.failed, report.waiting, report.done["fetch"]) == ((), 0, 1)
    assert list((out / "objects" / "fetch").glob("*/*")) == []
    assert in_cache() == {run[1]}
    assert len(hub.asked("GET", "model.safetensors")) == fetched + 1


def test_the_announced_bytes_are_those_of_the_files(run):
    sources = Sources()
    sources.announce(f"{NAME}@step1")
    resolve(f"{NAME}@step1")
    assert sources.pinned(f"{NAME}@step1") == run[1]
    folder = find_whole(run[1])
    assert sources.announced == {run[1]: sum(one.stat().st_size for one in folder.iterdir())}


def test_a_bound_that_is_smaller_than_a_step_is_one_line(run, tmp_path):
    with pytest.raises(UserError, match=r"^sweep, key max_disk: wanted at least .* takes alone"):
        launch(Sweep(study(max_disk=1000)), tmp_path / "a", Watched(tmp_path / "a"))
