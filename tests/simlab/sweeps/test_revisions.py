"""Which revision of a model of the hub a sweep takes: what the cache held when it began."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

from simlab import Sweep
from simlab.errors import UserError
from simlab.models.hub import cached_revision
from simlab.models.sources import resolve, restarts
from simlab.store.files import read_json
from simlab.sweeps import steps
from simlab.sweeps.sources import Sources
from simlab.sweeps.spec import make_spec
from simlab.sweeps.sweep import make_plan
from support.hubserver import commit_of
from support.lab.hubs import publish, publish_data
from support.lab.inline import Inline, run

NAME = "someone/tiny-bert"
OLD, NEW = "1" * 40, "2" * 40


@pytest.fixture
def cache(tmp_path, monkeypatch, tiny_bert):
    """A cache of the hub's client with two revisions; the newer one is `main`."""
    from huggingface_hub import constants

    root = tmp_path / "cache"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(root))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    place = root / "models--someone--tiny-bert"
    for revision in (OLD, NEW):
        shutil.copytree(tiny_bert.path, place / "snapshots" / revision)
        (place / "snapshots" / revision / "extra.json").write_text(json.dumps(revision))
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(NEW)
    return place


def model_key(name, memory=None):
    """What keys contain of a model, and where its jobs look for it."""
    prints = Sources(memory)
    plan = make_plan(make_spec({"models": [name], "tasks": ["rt"]}), prints)
    prints.save()
    job = next(job for job in plan.jobs if job.kind == "extract")
    return job.params["model"], job.hints["model"]


def test_a_named_revision_is_loaded(cache):
    assert cached_revision(NAME) == NEW
    assert resolve(f"{NAME}@{OLD}").path.name == OLD
    assert resolve(NAME).path.name == NEW
    with pytest.raises(UserError, match=f"model {NAME}@{'3' * 40}: wanted "):
        resolve(f"{NAME}@{'3' * 40}")
    assert [one.family for one in restarts("a/b-seed_{0..1}@main")] == ["b", "b"]
    assert cached_revision("no name!") is None


def test_the_revision_is_in_the_key(cache):
    pinned = ({"hub": NAME, "revision": NEW}, f"{NAME}@{NEW}")
    assert model_key(NAME) == pinned == model_key(f"{NAME}@{NEW}")
    assert model_key(f"{NAME}@{OLD}") == ({"hub": NAME, "revision": OLD}, f"{NAME}@{OLD}")
    assert model_key("someone/unknown") == ({"hub": "someone/unknown"}, "someone/unknown")


def test_a_folder_keeps_the_revision_that_it_began_with(cache, tmp_path):
    memory = tmp_path / "fingerprints.json"
    first = model_key(NAME, memory)
    (cache / "refs" / "main").write_text(OLD)
    assert model_key(NAME, memory) == first
    assert model_key(NAME) != first


def test_a_branch_is_the_commit_that_it_was(cache, tmp_path):
    memory = tmp_path / "fingerprints.json"
    (cache / "refs" / "step1").write_text(OLD)
    assert model_key(f"{NAME}@step1", memory) == ({"hub": NAME, "revision": OLD}, f"{NAME}@{OLD}")
    (cache / "refs" / "step1").write_text(NEW)
    assert model_key(f"{NAME}@step1", memory)[1] == f"{NAME}@{OLD}"


def test_a_plan_that_is_only_shown_remembers_no_model_that_is_not_there(cache, tmp_path):
    memory = tmp_path / "fingerprints.json"
    (cache / "refs" / "main").rename(cache / "main")
    assert model_key(NAME, memory) == ({"hub": NAME}, NAME)
    (cache / "main").rename(cache / "refs" / "main")
    assert model_key(NAME, memory) == ({"hub": NAME, "revision": NEW}, f"{NAME}@{NEW}")


class Observed(Inline):
    """An engine that notes the requests before its first job, and keeps no task between jobs."""

    def __init__(self, hub):
        super().__init__()
        self.hub, self.before = hub, None

    def submit(self, fn, order):
        if self.before is None:
            self.before = [*self.hub.log]
        steps._load_task.cache_clear()
        return super().submit(fn, order)


def test_a_sweep_downloads_everything_once_and_keeps_its_commit(hub, tmp_path, tiny_bert):
    for number in (0, 1):
        publish(hub, f"a/bert-seed_{number}", tiny_bert.path)
    publish_data(hub, "nyu-mll/glue", "rte", "rte")
    out, content = tmp_path / "out", {"models": ["a/bert-seed_{0..1}"], "tasks": ["rte"]}
    engine = Observed(hub)
    how = {"engine": engine, "durable": False, "figures": False}
    sweep = Sweep({**content, "finetune": {"max_steps": 1}, "extract": {"kind": "mean"}})
    report = sweep.run(out, **how)
    assert (report.failed, report.waiting) == ((), 0)
    assert engine.before == hub.log  # the jobs asked nothing
    for number in (0, 1):
        assert len(hub.asked(f"/api/models/a/bert-seed_{number}")) == 2
    assert len(hub.asked("GET", "train-00000")) == 1
    hub.log.clear()
    commit = commit_of(hub.folder("a/bert-seed_0"))
    for folder in (hub.folder("a/bert-seed_0"), hub.folder("a/bert-seed_1")):
        (folder / "added_tokens.json").write_text("{}")  # main moves
    more = Sweep({**content, "finetune": {"max_steps": 1}, "extract": {"kind": "cls"}})
    assert more.run(out, **how).failed == ()
    assert hub.log == []
    models = {job.hints["model"] for job in more.plan(out).jobs if "model" in job.hints}
    assert f"a/bert-seed_0@{commit}" in models


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"files": {"a": [1]}, "revisions": {}}'])
def test_a_damaged_memory_is_made_anew(cache, tmp_path, content):
    memory = tmp_path / "fingerprints.json"
    first = model_key(NAME, memory)
    whole = memory.read_bytes()
    memory.write_text(content)
    assert model_key(NAME, memory) == first
    assert memory.read_bytes() == whole


def test_jobs_load_the_revision(cache, tmp_path, entry):
    sweep = Sweep({"models": [NAME], "tasks": [entry], "grids": {"estimator": "biased"}})
    sweep.plan()
    out = tmp_path / "out"
    report = run(sweep, out)
    assert report.failed == ()
    (made,) = (out / "objects" / "extract").glob("*/*")
    manifest = json.loads((made / "manifest.json").read_text())
    assert manifest["model"] == f"{NAME}@{NEW}"
    (cache / "refs" / "main").write_text(OLD)
    assert not run(sweep, out).done


def test_every_step_of_a_training_run_is_the_revision_of_its_name(hub, tmp_path, tiny_bert):
    commits = {}
    for step in (0, 8):
        folder = shutil.copytree(tiny_bert.path, tmp_path / f"step{step}")
        file = folder / "model.safetensors"
        weights = {name: value * (1 + step / 10) for name, value in load_file(file).items()}
        save_file(weights, file, {"format": "pt"})
        commits[step] = publish(hub, NAME, folder, f"step{step}")
    publish_data(hub, "nyu-mll/glue", "rte", "rte")
    grids = {"between": "steps", "estimator": "biased"}
    content = {"models": [{"name": NAME, "revisions": "step{0,8}"}], "tasks": ["rte"]}
    out, engine = tmp_path / "out", Observed(hub)
    how = {"engine": engine, "durable": False, "figures": False}
    report = Sweep({**content, "extract": {"kind": "mean"}, "grids": grids}).run(out, **how)
    assert (report.failed, report.waiting) == ((), 0)
    assert engine.before == hub.log  # the jobs asked nothing

    def found():
        files = (out / "objects" / "extract").glob("*/*/manifest.json")
        manifests = [read_json(file) for file in files]
        return {(one["step"], one["kind"], one["model"]) for one in manifests}

    wanted = {(step, "mean", f"{NAME}@{commit}") for step, commit in commits.items()}
    assert found() == wanted
    hub.log.clear()
    (hub.folder(NAME, revision="step8") / "added_tokens.json").write_text("{}")  # the branch moves
    report = Sweep({**content, "extract": {"kind": "cls"}, "grids": grids}).run(out, **how)
    assert (report.failed, hub.log) == ((), [])
    assert found() == wanted | {(step, "cls", name) for step, _, name in wanted}
    content["models"][0]["revisions"] = "step{0,9}"
    with pytest.raises(
        UserError, match=f"model {NAME}@step9: wanted a download from the hub, found Revision"
    ):
        Sweep({**content, "grids": grids}).run(tmp_path / "other", **how)
