"""Steps of a training that are the same weights under two names are told."""

import json
import shutil

import pytest

from simlab import Sweep
from simlab.sweeps.planner import make_plan
from simlab.sweeps.spec import make_spec
from support.lab.inline import InlineEngine
from support.lab.runs import save_runs, save_step

NAME = "someone/tiny-bert"


@pytest.fixture
def cache(tmp_path, monkeypatch, tiny_bert):
    """A cache of the hub's client with four steps: steps 8 and 9 have the weights of step 4."""
    from huggingface_hub import constants

    root = tmp_path / "cache"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(root))
    place = root / "models--someone--tiny-bert"
    (place / "refs").mkdir(parents=True)
    commits = {1: "1" * 40, 4: "4" * 40, 8: "8" * 40, 9: "4" * 40}
    for step, commit in commits.items():
        (place / "refs" / f"step{step}").write_text(commit)
        folder = place / "snapshots" / commit
        if not folder.exists():
            save_step(tiny_bert.path, folder, 0, min(step, 4))
            config = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps({**config, "note": step}))
    return place


def spec_of(name, revisions, task="rt"):
    models = [{"name": name, "revisions": revisions}]
    return {"models": models, "tasks": [task], "grids": {"between": "steps", "to": "previous"}}


def test_another_commit_with_equal_weights_is_told(cache):
    plan = make_plan(make_spec(spec_of(NAME, ["step{1,4,8,9}"])))
    line = "3 steps have the weights of another step: tiny-bert: steps 4, 8, 9"
    assert plan.repeated == [line]
    assert plan.counts()["grid"] == 3
    assert make_plan(make_spec(spec_of(NAME, ["step{1,4}"]))).repeated == []


def test_a_file_in_the_cache_is_known_by_the_hash_that_the_hub_announces(cache):
    """The contents of the blobs are wrong here, and nobody reads them."""
    blobs = cache / "blobs"
    blobs.mkdir()
    for number, commit in enumerate(("1", "4", "8")):
        blob = blobs / (f"{number // 2}" * 64)
        blob.write_bytes(bytes([number]))
        file = cache / "snapshots" / (commit * 40) / "model.safetensors"
        file.unlink()
        file.symlink_to(f"../../blobs/{blob.name}")
    plan = make_plan(make_spec(spec_of(NAME, ["step{1,4,8}"])))
    assert plan.repeated == ["2 steps have the weights of another step: tiny-bert: steps 1, 4"]


def test_the_run_and_the_plan_say_so_once(tiny_bert, tmp_path, reviews, simcore, capfd):
    name = save_runs(tiny_bert.path, tmp_path, (0, 1), (1, 2))
    seed = tmp_path / "mini-seed_1"
    shutil.copytree(seed / "checkpoint-2", seed / "checkpoint-3")
    (seed / "checkpoint-3" / "added_tokens.json").write_text("{}")
    shutil.copytree(seed / "checkpoint-2", tmp_path / "mini-seed_0" / "checkpoint-3")
    task = {"name": str(reviews), "text_column": "body", "label_column": "verdict"}
    content = spec_of(name, "checkpoint-*", task)
    line = "2 steps have the weights of another step: mini[1]: steps 2, 3"
    assert Sweep(content).plan().repeated == [line]
    out = tmp_path / "out"
    Sweep(content).run(out, engine=InlineEngine(), durable=False, figures=False)
    assert capfd.readouterr().err.count(line) == 1
    file = tmp_path / "study.toml"
    file.write_text(
        f"models = [{{ name = '{name}', revisions = 'checkpoint-*' }}]\ntasks = ['rt']\n"
    )
    code, shown, _ = simcore("sweep", file, "--plan")
    assert code == 0
    assert " ".join(shown.split()).count(line) == 1
