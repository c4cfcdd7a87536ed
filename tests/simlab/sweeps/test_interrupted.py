"""Moments at which the system refuses, another process stands still, or a worker dies."""

import json
import os
import time

import pytest

from simlab.errors import BusyError, ReadError
from simlab.sweeps import claims
from simlab.sweeps import execute as module
from simlab.sweeps.execute import BUSY, CRASHED, MADE, Answer, Order, execute
from simlab.sweeps.failures import failure
from simlab.sweeps.finished import note_finished
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.leftovers import Leftovers
from simlab.sweeps.plan import Plan
from simlab.sweeps.watch import Watch
from support.lab import toysteps
from support.lab.clocks import Clock
from support.lab.disks import no_more_files
from support.lab.inline import InlineEngine
from support.lab.owner import wait_for
from support.lab.toysweep import STEPS, run_toy, runs, toy_plan


@pytest.fixture
def folder(tmp_path):
    found = SweepFolder(tmp_path, durable=False)
    found.create()
    return found


@pytest.fixture
def quick(monkeypatch):
    """Claims that are touched, and given back later, without delay."""
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(claims, "_BEATING", claims._Beating())


def test_a_claim_that_cannot_be_opened_is_given_back_later(folder, quick):
    mine, other = (claims.claim(folder.claims, name) for name in ("mine", "other"))
    with no_more_files():
        mine.release()
        time.sleep(0.1)  # the thread tries again, and goes on
    wait_for(lambda: not mine.path.exists())
    os.utime(other.path, (0, 0))
    wait_for(lambda: other.path.stat().st_mtime > 0)
    other.release()


def test_files_of_a_folder_follow_the_umask(folder):
    before = os.umask(0o002)
    try:
        held = claims.claim(folder.claims, "job")
        note_finished(folder, "grid", "job", 1.0)
    finally:
        os.umask(before)
    (log,) = folder.log.iterdir()
    assert [path.stat().st_mode & 0o777 for path in (held.path, log)] == [0o664, 0o664]
    held.release()


def test_a_claim_that_cannot_be_read_is_one_line(folder):
    mine = claims.claim(folder.claims, "job")
    wanted = "job: wanted to read it, found: Too many open files"
    with no_more_files(), pytest.raises(ReadError, match=wanted):
        mine.is_held()
    with no_more_files(), pytest.raises(ReadError, match=wanted), mine.locked():
        pass
    mine.release()


@pytest.mark.parametrize("times", [1, 9])
def test_a_job_that_cannot_be_read_is_tried_again_three_times_at_most(times, folder):
    """The claim of a job is a folder, which the system refuses to read as a file."""
    plan = toy_plan(folder.root, seeds=1)
    claim = folder.claims / plan.jobs[1].key
    claim.mkdir()

    class Refusing(InlineEngine):
        asked = 0

        def submit(self, order):
            super().submit(order)
            self.asked += order.job.key == claim.name
            if self.asked == times:
                claim.rmdir()

    if times == 1:
        assert not run_toy(folder.root, plan, start=lambda _: Refusing()).failed
        return
    with pytest.raises(ReadError, match=f"{claim.name}: wanted to read it, found: Is a directory"):
        run_toy(folder.root, plan, start=lambda _: Refusing())
    assert folder.failed() == {}


def test_an_output_stays_while_another_process_holds_the_lock_of_its_claim(
    folder, quick, monkeypatch
):
    job = toy_plan(folder.root, seeds=1).jobs[0]
    order = Order(str(folder.root), job, (), durable=False, steps=STEPS)

    def hold_then(*_):
        raise BusyError("another process holds the lock")

    def finetune(work):
        toysteps.finetune(work)
        patch.setattr(claims, "_lock", hold_then)

    with monkeypatch.context() as patch:
        patch.setitem(toysteps.STEPS, "finetune", finetune)
        assert execute(order).state == BUSY
    wait_for(lambda: folder.claimed() == [])
    assert execute(order).state == MADE
    assert runs(folder.root, "begin")["ft0"] == 1  # it was not trained again
    assert list(folder.work.iterdir()) == []


def test_a_worker_that_dies_after_it_published_leaves_a_line_and_no_claim(folder, monkeypatch):
    class Dying(InlineEngine):
        """Does orders in processes that end before they add the line of the log."""

        def submit(self, order):
            child = os.fork()
            if child == 0:
                module.note_finished = lambda *_: os._exit(9)
                execute(order)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
            self.answers.append(Answer(order.job.key, CRASHED, 0.0, "the worker ended"))

    plan = toy_plan(folder.root, seeds=1)
    outcome = run_toy(folder.root, plan, start=lambda _: Dying())
    assert (outcome.failed, outcome.waiting) == ([], 0)
    assert set(runs(folder.root, "begin").values()) == {1}
    assert sorted(line["key"] for line in folder.finished()) == sorted(j.key for j in plan.jobs)
    assert folder.claimed() == []
    assert folder.failed() == {}


def test_claims_of_nobody_go_also_where_they_are_stale_soon(folder, monkeypatch):
    owner = {"place": ["elsewhere"], "pid": 1, "started": "1", "token": "far"}
    (folder.claims / "key").write_text(json.dumps(owner))
    clock = Clock(monkeypatch)
    left = Leftovers(folder, Plan(), Watch(12), [], [])
    left.clean()
    for _ in range(40):
        clock.pass_time(1)
        left.look()
    assert folder.claimed() == []


def test_the_record_of_a_failure_takes_names_that_are_no_text(folder):
    job = toy_plan(folder.root, seeds=1).jobs[0]
    error = ValueError("no such file: " + os.fsdecode(b"caf\xe9.csv"))  # not its `repr`
    folder.fail(job.key, failure(job, error, str(error), 0.0))
    record = folder.failure(job.key)
    assert r"caf\udce9.csv" in record["error"]
    assert r"caf\udce9.csv" in record["traceback"]
