"""Local models and data that change while a sweep runs: no row of other data under an old key."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from simlab import Sweep
from simlab.errors import ReadError, UserError
from simlab.store import files
from simlab.store.files import HASHES, FileHashes
from simlab.sweeps import sources, steps
from simlab.sweeps.job import DONE, Order, do
from simlab.sweeps.outputs import SweepFolder
from simlab.sweeps.sources import MODEL, TASK, ChangedError, as_planned, content_of, source_hints
from simlab.sweeps.status import read_status
from support.lab.checkpoints import evaluation_of
from support.lab.inline import run
from support.lab.toysweep import STEPS, toy_plan


@pytest.fixture
def copies(tmp_path, tiny_bert, reviews):
    """A model and a task that a test may change."""
    shutil.copytree(tiny_bert.path, tmp_path / "model")
    shutil.copy(reviews, tmp_path / "task.csv")
    (tmp_path / "images" / "a").mkdir(parents=True)
    (tmp_path / "images" / "a" / "1.png").write_bytes(b"a picture")
    (tmp_path / "folder").mkdir()
    shutil.copy(reviews, tmp_path / "folder" / "train.csv")
    return tmp_path


def planned(what, name):
    """The hints of a job that reads a source."""
    return source_hints([(what, name, content_of(what, name, FileHashes()))])


def unchanged(hints):
    return as_planned(Path(), hints)


def write(file, content=b"other"):
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)


def swap(file):
    """Replace a file, and put it back."""
    file.rename(file.with_suffix(".kept"))
    file.write_text("other")
    file.with_suffix(".kept").rename(file)


CHANGES = {
    "weights": (MODEL, "model", lambda at: write(at / "model.safetensors")),
    "new tokens": (MODEL, "model", lambda at: write(at / "added_tokens.json")),
    "no model": (MODEL, "model", shutil.rmtree),
    "split": (MODEL, "model", lambda at: write(at / "evaluation.json", EVALUATION)),
    "table": (TASK, "task.csv", write),
    "no table": (TASK, "task.csv", os.unlink),
    "file of a folder": (TASK, "folder", lambda at: write(at / "dev.csv")),
    "picture": (TASK, "images:images", lambda at: write(at / "a" / "1.png")),
    "swapped": (TASK, "task.csv", swap),
}
EVALUATION = json.dumps(evaluation_of(splits=[{}])).encode()


@pytest.mark.parametrize("change", CHANGES)
def test_a_source_that_changes_is_refused(copies, change, monkeypatch):
    monkeypatch.chdir(copies)
    what, name, act = CHANGES[change]
    source = planned(what, name)
    with unchanged(source) as before:
        (copies / "model").chmod(0o755)
    with pytest.raises(ChangedError, match=r"wanted "), unchanged(source):
        act(copies / name.removeprefix("images:"))
    if change != "swapped":
        with pytest.raises(ChangedError, match=f"{what} {name}: wanted the content that was"):
            unchanged(source).__enter__()
    else:
        with unchanged(source) as after:
            assert after != before  # what was read meanwhile is read again


def test_an_error_because_of_a_change_names_the_change(copies):
    table = copies / "task.csv"
    source = planned(TASK, str(table))
    with pytest.raises(ZeroDivisionError), unchanged(source):
        raise ZeroDivisionError
    with pytest.raises(ChangedError) as found, unchanged(source):
        write(table) or 1 / 0
    assert isinstance(found.value.__context__, ZeroDivisionError)


def test_a_file_that_cannot_be_read_is_no_change(copies, monkeypatch):
    table = str(copies / "task.csv")
    source = planned(TASK, table)

    def refuse(*_):
        raise PermissionError(13, "Permission denied", table)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ReadError, match="wanted to read it, found: Permission denied"):
        unchanged(source).__enter__()


def test_a_job_opens_a_source_once_before_its_step_and_once_after(copies, monkeypatch):
    """And it hashes no file that is as it was when the sweep was planned."""
    monkeypatch.setattr("simlab.store.files._REST_NS", -(10**18))  # the files count as at rest
    monkeypatch.setattr(HASHES, "known", {})
    table, plan = str(copies / "task.csv"), toy_plan(copies, seeds=1)
    folder = SweepFolder(copies, durable=False)
    folder.create()
    prints = sources.Sources(copies / sources.PRINTS)
    hints = sources.source_hints([(TASK, table, prints.task(table))])
    prints.save()
    job = replace(plan.jobs[0], hints={**plan.jobs[0].hints, **hints})
    asked, state_of = [], sources.state_of
    for place in (sources, files):
        monkeypatch.setattr(place, "state_of", lambda file: (asked.append(file), state_of(file))[1])
    monkeypatch.setattr(files, "hash_file", lambda _: pytest.fail("the file is read again"))
    answer = do(Order(str(copies), job, (), durable=False, steps=STEPS))
    assert (answer.state, answer.message) == (DONE, "")
    assert [str(file) for file in asked] == [table, table]


@pytest.mark.slow
def test_rows_of_changed_data_are_not_stored(copies, monkeypatch):
    """Data are replaced after planning, while a fine-tuning runs; then they are put back."""
    model, table, out = copies / "model", copies / "task.csv", copies / "out"
    task = {"name": str(table), "text_column": "body", "label_column": "verdict"}
    sweep = Sweep(
        {
            "models": [{"name": str(model), "label": "tiny"}],
            "tasks": [{**task, "heldout_size": 80}],
            "finetune": {"max_steps": 1, "seeds": "1..2"},
            "grids": {"estimator": "biased"},
            "skip": True,
        }
    )
    run(sweep, copies / "clean")
    wanted = sweep.results(copies / "clean")
    first = table.read_bytes()
    lines = first.decode().splitlines()
    other = "\n".join([lines[0], *reversed(lines[1:])]).encode()
    finetune = steps.STEPS["finetune"]

    def change_then_finetune(work):
        write(table, other)
        return finetune(work)

    monkeypatch.setitem(steps.STEPS, "finetune", change_then_finetune)
    steps._load_task.cache_clear()
    report = run(sweep, out)
    titles = [title for title, _ in report.failed]
    assert [title for title in titles if "finetune" in title] == [
        f"finetune tiny-FT[{seed}] task" for seed in "12"
    ]
    assert all(str(table) in error for _, error in report.failed)
    assert report.done.get("finetune", 0) == 0
    assert read_status(out).total.failed == len(report.failed)
    write(table, first)
    monkeypatch.setitem(steps.STEPS, "finetune", finetune)
    assert run(sweep, out).failed == ()
    pd.testing.assert_frame_equal(sweep.results(out), wanted)
    # Data that stay changed are another study, with keys of its own.
    write(table, other)
    assert run(sweep, out).done["finetune"] == 2
    assert not sweep.results(out).equals(wanted)
    write(table, first)
    assert not run(sweep, out).done
    pd.testing.assert_frame_equal(sweep.results(out), wanted)
    assert SweepFolder(out).failed() == {}


@pytest.mark.parametrize("name", ["hub:aps/super_glue:wsc.fixed", "hub:a/set@v1.0", "a/set.v2"])
def test_a_dot_in_the_name_of_a_data_set_of_the_hub_is_no_file(name):
    assert "hub" in content_of(TASK, name, FileHashes())
    with pytest.raises(UserError, match="wanted a file or folder, found none"):
        content_of(TASK, "rows.JSONL", FileHashes())
