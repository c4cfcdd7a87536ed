"""Jobs whose processes end: how often they are tried again, and who records their failures."""

import fcntl
import json

import pytest

from simlab.sweeps.attempts import MOST_STOPS, Attempts
from simlab.sweeps.execute import CRASHED, MOST_ATTEMPTS, STOPPED, Answer
from simlab.sweeps.folder import SweepFolder
from support.lab.inline import InlineEngine
from support.lab.stolen import FAR
from support.lab.toysweep import run_toy, runs, toy_plan


class Ending(InlineEngine):
    """Its processes end when they have one job, and have claimed nothing."""

    def __init__(self, key, state):
        super().__init__()
        self.key, self.state, self.ends = key, state, 0

    def submit(self, order):
        if order.job.key != self.key:
            return super().submit(order)
        self.ends += 1
        return self.answers.append(Answer(self.key, self.state, message="the worker ended"))


@pytest.fixture
def plan(tmp_path):
    return toy_plan(tmp_path, seeds=1)


@pytest.fixture
def folder(tmp_path):
    found = SweepFolder(tmp_path, durable=False)
    found.create()
    return found


def test_a_job_whose_process_is_told_to_end_is_tried_again_ten_times_in_a_run(tmp_path, plan):
    engine = Ending(plan.jobs[1].key, STOPPED)
    outcome = run_toy(tmp_path, plan, start=lambda _: engine)
    assert engine.ends == MOST_STOPS == 10
    ((job, error),) = outcome.failed
    assert (job, outcome.waiting) == ("extract rows0", 3)
    assert error.startswith("the worker ended; so ended 10 attempts of one run, and the same")
    again = run_toy(tmp_path, plan, start=lambda _: InlineEngine())
    assert (again.failed, again.waiting) == ([], 0)


@pytest.mark.parametrize("state", [CRASHED, STOPPED])
def test_a_driver_records_a_failure_under_the_claim_of_the_job(
    state, tmp_path, plan, folder, monkeypatch
):
    key, seen = plan.jobs[1].key, []
    fail = SweepFolder.fail

    def locked_fail(self, failed, record):
        with (self.claims / failed).open("rb") as claim, pytest.raises(BlockingIOError):
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen.append(failed)
        fail(self, failed, record)

    monkeypatch.setattr(SweepFolder, "fail", locked_fail)
    run_toy(tmp_path, plan, start=lambda _: Ending(key, state))
    assert set(seen) == {key}
    assert list(folder.claims.iterdir()) == []


def test_a_failure_of_a_job_that_another_process_has_claimed_is_not_recorded(plan, folder):
    job = plan.jobs[1]
    (folder.claims / job.key).write_text(json.dumps(FAR))
    assert Attempts(folder).record(job, "the worker ended", CRASHED) is None
    assert folder.failed() == {}
    (folder.claims / job.key).unlink()
    records = [Attempts(folder).record(job, "the worker ended", CRASHED) for _ in range(3)]
    assert [record["attempts"] for record in records] == [1, 2, MOST_ATTEMPTS]


def test_a_process_of_another_machine_that_dies_is_recorded_when_its_claim_is_dead(
    tmp_path, plan, folder
):
    """The claim of a process that Ray says is dead is as another's, until it has been silent."""
    key = plan.jobs[1].key
    records = []

    class Far(Ending):
        def submit(self, order):
            records.append(folder.failure(key))
            if order.job.key == key and self.ends:
                self.key = ""
            elif order.job.key == key:
                (folder.claims / key).write_text(json.dumps(FAR))
            super().submit(order)

        def collect(self, seconds):
            if (folder.claims / key).exists() and self.ends:
                assert folder.failure(key) is None
            return super().collect(seconds)

    outcome = run_toy(tmp_path, plan, start=lambda _: Far(key, CRASHED), stale=2.0)
    assert (outcome.failed, outcome.waiting) == ([], 0)
    assert [record and record["attempts"] for record in records[:3]] == [None, None, 1]
    assert folder.failed() == {}
    assert runs(tmp_path, "begin")["rows0"] == 1
