"""Outputs that an owner finished and could not publish: the next owner does."""

import fcntl

import pytest

from simlab.errors import BusyError
from simlab.sweeps import claims
from simlab.sweeps.execute import BUSY, MADE, Order, execute
from simlab.sweeps.folder import SweepFolder
from support.lab import toysteps
from support.lab.toysweep import STEPS, runs, toy_plan

KINDS = {"extract": 1, "grid": 2}  # and the numbers of their jobs; training continues anyway


def order(root, plan, number):
    job = plan.jobs[number]
    needs = tuple((plan.jobs[n].kind, plan.jobs[n].key) for n in job.needs)
    return Order(str(root), job, needs, durable=False, steps=STEPS)


@pytest.fixture
def plan(tmp_path):
    return toy_plan(tmp_path, seeds=1)


@pytest.fixture(params=KINDS)
def kept(request, tmp_path, plan, monkeypatch):
    """A job that is done but for its publication; a process that stands still holds its claim.

    The number of the job, and the scratch folder.
    """
    number = KINDS[request.param]
    folder = SweepFolder(tmp_path, durable=False)
    folder.create()
    for needed in range(number):
        assert execute(order(tmp_path, plan, needed)).state == MADE
    step, held = toysteps.STEPS[request.param], []

    def step_then_stop(work):
        found = step(work)
        held.append((folder.claims / plan.jobs[number].key).open("r+b"))
        fcntl.flock(held[0], fcntl.LOCK_EX)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(toysteps.STEPS, request.param, step_then_stop)
        patch.setattr(claims, "_lock", lambda d, p, until: lock_at_once(d, p))
        assert execute(order(tmp_path, plan, number)).state == BUSY
        held[0].close()
    (folder.claims / plan.jobs[number].key).unlink()
    assert runs(tmp_path, "end")[plan.jobs[number].params["name"]] == 1
    (scratch,) = folder.work.iterdir()
    return number, scratch


def lock_at_once(descriptor, path):
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BusyError(f"{path}: a process stands still with the lock") from None


def test_the_next_owner_publishes_it(kept, tmp_path, plan):
    number, _ = kept
    job, folder = plan.jobs[number], SweepFolder(tmp_path, durable=False)
    assert execute(order(tmp_path, plan, number)).state == MADE
    assert runs(tmp_path, "begin")[job.params["name"]] == 1
    assert list(folder.work.iterdir()) == []
    assert execute(order(tmp_path, plan, 3)).state == (MADE if number == 2 else "damaged input")


def test_it_is_made_again_if_it_is_not_what_was_written(kept, tmp_path, plan):
    """After a power cut, a file may have its name and not its bytes."""
    number, scratch = kept
    job, folder = plan.jobs[number], SweepFolder(tmp_path, durable=False)
    (file,) = scratch.rglob("rows.*")
    content = bytearray(file.read_bytes())
    content[200] ^= 0x55
    file.write_bytes(content)
    assert execute(order(tmp_path, plan, number)).state == MADE
    assert runs(tmp_path, "begin")[job.params["name"]] == 2
    assert list(folder.work.iterdir()) == []
    if job.is_rows:
        assert execute(order(tmp_path, plan, 3)).state == MADE
    else:
        folder.check(job.kind, job.key)
