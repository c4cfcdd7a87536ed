"""What a sweep refuses before its first job: models that are not here, folders of other steps."""

import shutil

import pytest
from huggingface_hub import constants

from simlab import Sweep
from simlab.errors import UserError
from simlab.models.sources import similar_name
from simlab.store.files import write_json
from simlab.sweeps.outputs import SweepFolder
from simlab.sweeps.sweep import require_place
from support.lab.commandline import check_refused
from support.lab.hubs import publish
from support.lab.inline import run


@pytest.fixture
def misspelt(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text('models = ["minlm", "minilm"]\ntasks = ["rt"]\n')
    return file


def test_the_plan_names_what_it_would_download(misspelt, simcore):
    code, printed, _ = simcore("sweep", misspelt, "--plan")
    assert code == 0
    assert "to download from the hub: minlm (did you mean 'minilm'?)" in printed


def test_the_plan_names_tasks_that_it_does_not_know(tmp_path, reviews, simcore):
    columns = 'text_column = "body", label_column = "verdict"'
    file = tmp_path / "study.toml"
    file.write_text(
        f'models = ["minilm"]\ntasks = ["rtt", "rt", "user/data", '
        f'{{ name = "{reviews}", {columns} }}]\n'
    )
    code, printed, _ = simcore("sweep", file, "--plan")
    assert code == 0
    assert "tasks to load from the hub: rtt (did you mean 'rt'?), user/data\n" in printed


def test_a_run_without_a_hub_is_refused_before_anything_is_written(
    misspelt, tmp_path, simcore, offline
):
    out = tmp_path / "out"
    words = (
        "model minlm (did you mean 'minilm'?): wanted a folder here, or a download",
        "HF_HUB_OFFLINE",
    )
    check_refused(simcore("sweep", misspelt, "--out", out), *words)
    assert not out.exists()


def test_jobs_that_are_done_load_no_model(tmp_path, tiny_bert, entry, monkeypatch, hub):
    publish(hub, "a/bert", tiny_bert.path)
    sweep = Sweep({"models": ["a/bert"], "tasks": [{**entry, "heldout_size": 80}]})
    report = run(sweep, tmp_path / "out")
    assert (sum(report.done.values()), report.jobs) == (2, 2)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    shutil.rmtree(constants.HF_HUB_CACHE)
    assert run(sweep, tmp_path / "out").jobs == 2
    with pytest.raises(UserError, match="model a/bert: wanted a download from the hub"):
        run(sweep, tmp_path / "other")


def test_similar_names(tmp_path, monkeypatch):
    (tmp_path / "ft-1").mkdir()
    monkeypatch.chdir(tmp_path)
    assert similar_name("mini-lm") == " (did you mean 'minilm'?)"
    assert similar_name(str(tmp_path / "ft_1")) == f" (did you mean '{tmp_path}/ft-1'?)"
    assert similar_name("google/multiberts-seed_0") == ""


def test_a_name_with_another_number_is_no_misspelt_one(tmp_path):
    """A plan of 25 restarts, one of which is there, asked 24 times whether that one was meant."""
    (tmp_path / "seed_0").mkdir()
    assert similar_name(f"{tmp_path}/seed_13") == ""
    assert similar_name(f"{tmp_path}/sed_13") == f" (did you mean '{tmp_path}/seed_0'?)"


@pytest.fixture
def others(tmp_path):
    """A folder that another step wrote, such as `simcore extract`."""
    folder = tmp_path / "reps"
    folder.mkdir()
    for name in ("cls.safetensors", "job.json", "manifest.json", "rows.json"):
        write_json(folder / name, {})
    return folder


@pytest.mark.parametrize("plan", [[], ["--plan"]], ids=["run", "plan"])
def test_files_of_another_step_are_left_alone(others, simcore, tmp_path, plan):
    before = sorted(others.iterdir())
    file = tmp_path / "study.toml"
    file.write_text('models = ["minilm"]\ntasks = ["rt"]\n')
    found = "found cls.safetensors, job.json, manifest.json, ...; choose another --out"
    check_refused(simcore("sweep", file, "--out", others, *plan), "a new or empty folder", found)
    with pytest.raises(UserError, match="a new or empty folder"):
        Sweep.from_file(file).run(others)
    assert sorted(others.iterdir()) == before


def test_a_new_an_empty_and_an_interrupted_folder_are_taken(tmp_path):
    folder = SweepFolder(tmp_path / "out")
    require_place(folder)
    folder.root.mkdir()
    (folder.root / ".nfs0001").touch()
    require_place(folder)
    (folder.root / ".lock").touch()  # what a driver makes first
    require_place(folder)
    (tmp_path / "planned").mkdir()
    write_json(tmp_path / "planned" / "fingerprints.json", {})
    require_place(SweepFolder(tmp_path / "planned"))
