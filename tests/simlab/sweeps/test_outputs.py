"""Outputs under their keys: published once, seen late, read while a driver gathers them."""

import errno
import os
import threading

import pytest

from simlab.errors import WriteError
from simlab.sweeps import outputs
from simlab.sweeps.job import DAMAGED, DONE, Order, do
from simlab.sweeps.outputs import DamagedError, MissingError, SweepFolder, read_record
from simlab.sweeps.rows import read_rows
from support.lab.inline import Inline
from support.lab.toysweep import STEPS, run_toy, runs, toy_plan


@pytest.fixture
def orders(tmp_path):
    """Orders of all jobs of one seed: a checkpoint, representations, a grid, its blocks."""
    plan = toy_plan(tmp_path, seeds=1)
    SweepFolder(tmp_path).create()
    needs = [tuple((plan.jobs[n].kind, plan.jobs[n].key) for n in job.needs) for job in plan.jobs]
    return [
        Order(str(tmp_path), job, needed, durable=False, steps=STEPS, patience=patience)
        for job, needed in zip(plan.jobs, needs, strict=True)
        for patience in (0, 10)
    ]


def made(folder, name, text):
    """A finished folder in ``work/``."""
    place = folder.work / name
    place.mkdir(parents=True)
    (place / "weights").write_text(text)
    return place


KEY = "ab" * 32


def test_the_first_of_two_outputs_stays(tmp_path):
    """Two processes did one job, on devices whose bits differ."""
    folder = SweepFolder(tmp_path)
    for text in ("first", "second"):
        folder.publish("finetune", KEY, made(folder, text, text), 1.0, "a model")
        assert (folder.place("finetune", KEY) / "weights").read_text() == "first"
    folder.check("finetune", KEY)
    parts = [tmp_path / name for name in ("one", "two")]
    for part in parts:
        part.write_text(part.name)
        folder.publish("grid", KEY, part)
    assert folder.place("grid", KEY).read_text() == "one"


@pytest.mark.parametrize("kind", ["finetune", "grid"])
def test_a_rename_whose_reply_was_lost_counts(kind, tmp_path, monkeypatch):
    """A server renames, the client asks again, and is told that there is nothing to rename."""
    folder, rename = SweepFolder(tmp_path), os.rename

    def renamed_twice(source, target):
        rename(source, target)
        raise FileNotFoundError(errno.ENOENT, "No such file", str(source))

    monkeypatch.setattr(os, "rename", renamed_twice)
    if kind == "grid":
        (tmp_path / "rows").write_text("rows")
        folder.publish(kind, KEY, tmp_path / "rows")
    else:
        folder.publish(kind, KEY, made(folder, "made", "text"), 1.0, "a model")
    assert folder.has(kind, KEY)


def test_a_rename_that_is_refused_is_an_error(tmp_path, monkeypatch):
    folder = SweepFolder(tmp_path)

    def refuse(source, target):
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(WriteError, match="No space left"):
        folder.publish("finetune", KEY, made(folder, "made", "text"), 1.0, "a model")


def test_an_output_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    folder, calls = SweepFolder(tmp_path), []
    sync, rename = outputs.sync, os.rename
    monkeypatch.setattr(outputs, "sync", lambda path: (calls.append("sync"), sync(path)))
    monkeypatch.setattr(os, "rename", lambda a, b: (calls.append("rename"), rename(a, b)))
    names = outputs.sync_names
    monkeypatch.setattr(outputs, "sync_names", lambda path: (calls.append("names"), names(path)))
    folder.publish("finetune", KEY, made(folder, "made", "text"), 1.0, "a model")
    assert calls == ["sync", "rename", "names"]


@pytest.mark.parametrize("needed", [1, 2])  # a folder, and rows
def test_an_input_that_a_file_system_shows_late_is_waited_for(
    orders, needed, tmp_path, monkeypatch
):
    monkeypatch.setattr(outputs, "_LOOK_SECONDS", 0.05)
    for order in orders[: 2 * needed + 2 : 2]:
        assert do(order).state == DONE
    hasty, patient = orders[2 * needed + 2 : 2 * needed + 4]
    job = orders[2 * needed].job
    place = SweepFolder(tmp_path).place(job.kind, job.key)
    hidden = place.rename(tmp_path / "hidden")
    assert do(hasty).state == DAMAGED
    threading.Timer(0.2, lambda: hidden.rename(place)).start()
    assert do(patient).state == DONE


@pytest.mark.parametrize("level", [0, 1])  # the output is new, or its folder is new as well
def test_an_output_of_another_process_is_seen_in_time(orders, level, tmp_path, monkeypatch):
    """A network file system remembers that a name was not there until its folder is opened."""
    order, listdir = orders[0], os.listdir
    assert do(order).state == DONE
    place = SweepFolder(tmp_path).place(order.job.kind, order.job.key)
    unseen = [place, place.parent][level]
    hidden = unseen.rename(tmp_path / "hidden")

    def listed(folder):
        if folder == unseen.parent and hidden.exists():
            hidden.rename(unseen)
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", listed)
    assert do(order).state == DONE
    assert runs(tmp_path, "begin")["ft0"] == 1


def test_rows_that_are_gathered_meanwhile_are_found(orders, tmp_path, monkeypatch):
    *first, blocks = orders[:8:2]
    for order in first:
        assert do(order).state == DONE
    data = SweepFolder(tmp_path, durable=False).data

    def gather_then(path):
        if path.stem == first[-1].job.key:
            data.gather([path])
        return read_rows(path)

    monkeypatch.setattr(outputs, "read_rows", gather_then)
    answer = do(blocks)
    assert (answer.state, answer.message) == (DONE, "")
    assert not SweepFolder(tmp_path).place("grid", first[-1].job.key).exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '"abc"', '{"key": 1}', '{"key": "a", "files'])
def test_a_record_of_another_shape_is_none(text, tmp_path):
    (tmp_path / "record").write_text(text)
    assert read_record(tmp_path / "record", key=str) is None


def test_records_of_another_shape_are_damage_and_no_error(tmp_path):
    plan = toy_plan(tmp_path, seeds=1)
    run_toy(tmp_path, plan, start=lambda _: Inline())
    folder, job = SweepFolder(tmp_path), plan.jobs[1]
    record = folder.place(job.kind, job.key) / "object.json"
    record.write_text(f'{{"key": "{job.key}", "bytes": 1, "files": {{"rows.npy": "abc"}}}}')
    with pytest.raises(DamagedError, match="wanted -1 bytes"):
        folder.check(job.kind, job.key)
    with pytest.raises(MissingError, match="wanted the record of an object, found none"):
        folder.check(job.kind, KEY)
    (folder.failures / "key.json").write_text("[]")
    (folder.log / "other.jsonl").write_text('{"a": 1}\n{"kind": "grid", "sec')
    (tmp_path / "plan.json").write_text("[]")
    assert not run_toy(tmp_path, plan, start=lambda _: Inline()).done
    assert folder.failed() == {}
    assert {kind for kind, _ in folder.finished()} == set(plan.counts())
