"""Models that are not on this machine: told by the plan, refused before the first job."""

import shutil

import pytest
from huggingface_hub import constants

from simlab import Sweep
from simlab.errors import UserError
from simlab.models.sources import similar_name
from support.lab.commandline import check_refused
from support.lab.hubs import publish
from support.lab.inline import Inline


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


def test_jobs_that_are_done_load_no_model(tmp_path, tiny_bert, reviews, monkeypatch, hub):
    publish(hub, "a/bert", tiny_bert.path)
    task = {"name": str(reviews), "text_column": "body", "label_column": "verdict"}
    sweep = Sweep({"models": ["a/bert"], "tasks": [{**task, "heldout_size": 80}]})
    how = {"engine": Inline(), "durable": False, "figures": False}
    report = sweep.run(tmp_path / "out", **how)
    assert (sum(report.done.values()), report.jobs) == (2, 2)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    shutil.rmtree(constants.HF_HUB_CACHE)
    assert sweep.run(tmp_path / "out", **how).jobs == 2
    with pytest.raises(UserError, match="model a/bert: wanted a download from the hub"):
        sweep.run(tmp_path / "other", **how)


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
