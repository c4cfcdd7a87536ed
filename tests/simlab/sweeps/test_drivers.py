"""Drivers of two studies on one folder: one works, the other is refused until the first ends."""

import json
import os
import threading
import time

import pytest

from simlab.errors import UserError
from simlab.store.ownership import owned
from simlab.sweeps import gathering
from simlab.sweeps.claims import BEAT_SECONDS
from simlab.sweeps.drivers import driving, study_of
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.locking import Probe
from simlab.sweeps.neighbours import probe_of
from simlab.sweeps.watch import Watch
from support.lab.clocks import Clock
from support.lab.commandline import check_refused
from support.lab.owner import wait_for
from support.lab.stolen import FAR
from support.lab.toysweep import rows, run_toy, runs, start_driver, toy_plan


@pytest.fixture
def at_work(tmp_path):
    """A driver in a process of its own, whose first job waits for the file ``go``."""
    process = start_driver(tmp_path, wait=str(tmp_path / "go"))
    wait_for((tmp_path / "runs.txt").exists)
    yield process
    process.kill()
    process.wait()


def test_a_driver_of_another_study_is_refused(at_work, tmp_path):
    same, other = (study_of(toy_plan(tmp_path, seeds), "all", None) for seeds in (4, 3))
    folder = SweepFolder(tmp_path)
    with driving(folder, same):
        pass
    with (
        pytest.raises(UserError, match=f"wanted one study at a time, found process {at_work.pid}"),
        driving(folder, other),
    ):
        pass


def test_the_command_is_refused_in_one_line_and_writes_nothing(
    at_work, tmp_path, simcore, tiny_bert, reviews
):
    file = tmp_path / "study.toml"
    file.write_text(
        f'models = ["{tiny_bert.path}"]\n'
        f'tasks = [{{name = "{reviews}", text_column = "body", label_column = "verdict"}}]\n'
    )
    before = (tmp_path / "plan.json").read_bytes()
    refused = simcore("sweep", file, "--out", tmp_path)
    check_refused(refused, f"--out {tmp_path}", f"process {at_work.pid} on", "another --out")
    assert (tmp_path / "plan.json").read_bytes() == before
    assert not (tmp_path / "sweep.json").exists()


def test_what_two_studies_share_is_done_once(at_work, tmp_path):
    (tmp_path / "go").touch()
    assert at_work.wait() == 0
    larger = toy_plan(tmp_path, seeds=5)  # the four seeds of the first study, and another
    outcome = run_toy(tmp_path, larger)
    assert outcome.done == {"finetune": 1, "extract": 1, "grid": 2, "blocks": 1}
    assert len(rows(tmp_path, larger)) == 6 * 3 + 5
    assert set(runs(tmp_path, "begin").values()) == {1, 2}  # both have a job named "joint"
    assert list((tmp_path / "drivers").glob("[!.]*")) == []


def test_a_killed_driver_stands_in_nobodys_way(at_work, tmp_path):
    at_work.kill()
    at_work.wait()
    (tmp_path / "go").touch()
    assert not run_toy(tmp_path, toy_plan(tmp_path, seeds=1)).failed


def test_a_driver_of_another_machine_that_is_silent_is_waited_for(tmp_path, capsys):
    folder = SweepFolder(tmp_path)
    folder.create()
    path = folder.drivers / "another-00000000"
    path.write_text(json.dumps(FAR))
    os.utime(path, (time.time() + 86400,) * 2)
    with driving(folder, "study", Watch(2.0)), driving(folder, "study"):
        assert len(list(folder.drivers.glob("study-*"))) == 2
        assert not path.exists()
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("looks for 2 seconds whether process 1 on elsewhere is still at work") == 1


def test_a_driver_of_another_machine_that_is_alive_is_found_at_its_next_sign(tmp_path):
    folder = SweepFolder(tmp_path)
    folder.create()
    path = folder.drivers / "another-00000000"
    path.write_text(json.dumps(FAR))
    threading.Timer(1, lambda: os.utime(path, (1, 1))).start()
    with (
        pytest.raises(UserError, match="wanted one study at a time, found process 1 on elsewhere"),
        driving(folder, "study"),
    ):
        pass


@pytest.fixture
def neighbour(tmp_path):
    """The claim of a driver of the same study on another machine, and its file of the lock."""
    folder = SweepFolder(tmp_path)
    folder.create()
    path = folder.drivers / "study-00000000"
    path.write_text(json.dumps(FAR))
    probe = Probe(probe_of(path))
    yield path, probe
    probe.remove()


def touch(path):
    os.utime(path, (1, 1))


def test_a_driver_whose_lock_is_free_and_that_is_alive_is_refused(tmp_path, neighbour):
    """Locks that hold on each machine alone: the other one holds the lock, and we get it."""
    path, probe = neighbour
    probe.close()
    threading.Timer(1, touch, [path]).start()
    words = "wanted a folder whose locks hold on all machines, found that process 1 on elsewhere"
    with pytest.raises(UserError, match=words) as refused, driving(SweepFolder(tmp_path), "study"):
        pass
    assert "\n" not in str(refused.value)
    assert set((tmp_path / "drivers").iterdir()) == {probe_of(path), path}


def test_a_driver_that_comes_later_is_found_by_the_one_at_work(tmp_path, neighbour, monkeypatch):
    path, probe = neighbour
    clock = Clock(monkeypatch)
    with driving(SweepFolder(tmp_path), "study") as place:
        clock.pass_time(BEAT_SECONDS + 1)
        place.check()  # the lock keeps this process off
        touch(path)
        probe.close()
        clock.pass_time(BEAT_SECONDS + 1)
        place.check()  # the lock is free: the driver may have ended
        os.utime(path, (2, 2))
        place.check()
        clock.pass_time(BEAT_SECONDS + 1)
        with pytest.raises(UserError, match="its locks do not keep this machine off"):
            place.check()


def test_a_driver_whose_lock_keeps_others_off_is_welcome(tmp_path, neighbour, capsys):
    path, _ = neighbour
    with driving(SweepFolder(tmp_path), "study"):
        touch(path)
    assert capsys.readouterr().err == ""


def test_a_driver_of_another_machine_that_was_killed_is_waited_for_shortly(
    tmp_path, neighbour, capsys
):
    path, probe = neighbour
    probe.close()
    with driving(SweepFolder(tmp_path), "study", Watch(1.0)) as place:
        place.check()
    assert "whether process 1 on elsewhere is still at work" in " ".join(
        capsys.readouterr().err.split()
    )
    path.unlink()
    with driving(SweepFolder(tmp_path), "study"):
        pass
    assert list((tmp_path / "drivers").iterdir()) == []


@pytest.mark.parametrize("at_start", ["a damaged file", "rows of an earlier file"])
def test_no_rows_change_while_another_driver_moves_rows(at_start, tmp_path, monkeypatch):
    run_toy(tmp_path, toy_plan(tmp_path, seeds=2))
    (file,) = SweepFolder(tmp_path).data.files()
    if at_start == "a damaged file":
        file.write_bytes(file.read_bytes()[:-50])
    content = file.read_bytes()
    monkeypatch.setattr(gathering, "PATIENCE_SECONDS", 0.0)
    with (
        owned(tmp_path / "results", lock=tmp_path / ".results.lock"),
        pytest.raises(UserError, match=rf"found process {os.getpid()} on .*same command moves"),
    ):
        run_toy(tmp_path, toy_plan(tmp_path, seeds=1))
    assert file.read_bytes() == content


def test_studies_differ_in_jobs_and_in_what_is_kept(tmp_path):
    plan, other = toy_plan(tmp_path), toy_plan(tmp_path, seeds=3)
    found = [study_of(plan, "all", None), study_of(plan, "results", None)]
    found += [study_of(plan, "all", 10**9), study_of(other, "all", None)]
    assert len(set(found)) == 4
    assert study_of(toy_plan(tmp_path, seconds=1), "all", None) == found[0]  # a hint
