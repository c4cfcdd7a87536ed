"""Objects that are damaged, replaced or deleted after a process hashed them, and while it reads."""

import os

import pytest

from simlab.sweeps.execute import BUSY, DAMAGED, MADE, Order, execute
from simlab.sweeps.folder import SweepFolder
from support.lab import toysteps
from support.lab.inline import InlineEngine
from support.lab.toysweep import STEPS, run_toy, runs, same_as, toy_plan


@pytest.fixture
def folder(tmp_path):
    found = SweepFolder(tmp_path, durable=False)
    found.create()
    return found


@pytest.fixture
def plan(tmp_path):
    """A checkpoint, its representations, a grid of these and its blocks; and a grid beside it."""
    return toy_plan(tmp_path, seeds=1)


def do(folder, plan, number):
    """Do a job of the plan in this process, and return the answer."""
    job = plan.jobs[number]
    needs = tuple((plan.jobs[n].kind, plan.jobs[n].key) for n in job.needs)
    return execute(Order(str(folder.root), job, needs, durable=False, steps=STEPS))


def place(folder, plan, number):
    return folder.place(plan.jobs[number].kind, plan.jobs[number].key)


def flip(file):
    """Change a byte in place, which changes neither the size of the file nor its folder."""
    with file.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        last = stream.read(1)[0]
        stream.seek(-1, os.SEEK_END)
        stream.write(bytes([last ^ 0x40]))


def swap(file):
    """Move a file away, put another in its place, and the first one back."""
    kept = file.rename(file.with_suffix(".kept"))
    file.write_bytes(kept.read_bytes()[:-1] + b"?")
    toysteps.np.load(file)
    kept.rename(file)


def before_reading(monkeypatch, kind, act):
    """Have `act` happen once when a step of a kind has begun and has read nothing yet."""
    step, acts = toysteps.STEPS[kind], [act]

    def disturbed(work):
        while acts:
            acts.pop()()
        return step(work)

    monkeypatch.setitem(toysteps.STEPS, kind, disturbed)


def test_an_object_that_is_damaged_after_its_first_reading_is_found(folder, plan):
    """The same process has hashed the object for an earlier job."""
    assert [do(folder, plan, number).state for number in (0, 1, 2)] == [MADE] * 3
    file = place(folder, plan, 1) / "rows.npy"
    flip(file)
    answer = do(folder, plan, 4)
    assert (answer.state, answer.damaged) == (DAMAGED, ("extract", plan.jobs[1].key))
    assert f"{file}: wanted SHA-256" in answer.message
    assert not place(folder, plan, 4).exists()


@pytest.mark.parametrize("number", [1, 2])  # a step that makes a folder, and one that makes rows
def test_an_object_that_is_damaged_between_its_check_and_its_reading_makes_nothing(
    number, folder, plan, monkeypatch
):
    for needed in range(number):
        assert do(folder, plan, needed).state == MADE
    source = place(folder, plan, number - 1)
    file = sorted(source.glob("*.npy"))[0]
    before_reading(monkeypatch, plan.jobs[number].kind, lambda: flip(file))
    answer = do(folder, plan, number)
    assert (answer.state, answer.damaged[1]) == (DAMAGED, plan.jobs[number - 1].key)
    assert [path.exists() for path in (place(folder, plan, number), source)] == [False, False]
    assert folder.failed() == {}
    assert list(folder.work.iterdir()) == []


def test_a_driver_makes_it_again_and_then_its_user(folder, whole, monkeypatch, capsys):
    plan = toy_plan(folder.root)
    file = place(folder, plan, 1) / "rows.npy"
    before_reading(monkeypatch, "grid", lambda: flip(file))
    outcome = run_toy(folder.root, plan, start=lambda _: InlineEngine())
    assert (outcome.failed, outcome.waiting) == ([], 0)
    assert same_as(whole, folder.root, plan)
    assert runs(folder.root, "end")["rows0"] == runs(folder.root, "end")["grid0"] == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"{file}: wanted SHA-256" in told
    assert told.count("it is made again") == 1


def test_an_error_of_a_step_that_read_a_damaged_object_is_no_failure(folder, plan, monkeypatch):
    for number in (0, 1):
        assert do(folder, plan, number).state == MADE
    file = place(folder, plan, 1) / "rows.npy"
    before_reading(monkeypatch, "grid", lambda: os.truncate(file, 10))
    assert do(folder, plan, 2).state == DAMAGED
    assert folder.failed() == {}


@pytest.mark.parametrize("act", [swap, lambda file: (flip(file), flip(file))])
def test_an_object_that_is_whole_again_when_the_step_ends_is_read_again(
    act, folder, plan, monkeypatch
):
    for number in (0, 1):
        assert do(folder, plan, number).state == MADE
    file = place(folder, plan, 1) / "rows.npy"
    before_reading(monkeypatch, "grid", lambda: act(file))
    answer = do(folder, plan, 2)
    assert (answer.state, answer.damaged) == (BUSY, None)
    assert "wanted a file that nobody touches while a job reads it" in answer.message
    assert do(folder, plan, 2).state == MADE
    assert file.exists()


def test_rights_and_links_of_a_file_may_change_while_it_is_read(folder, plan, monkeypatch):
    for number in (0, 1):
        assert do(folder, plan, number).state == MADE
    file = place(folder, plan, 1) / "rows.npy"

    def touch():
        file.chmod(0o600)
        os.link(file, folder.root / "backup.npy")

    before_reading(monkeypatch, "grid", touch)
    assert do(folder, plan, 2).state == MADE


def test_an_object_that_is_deleted_to_make_room_while_it_is_read_was_whole(
    folder, plan, monkeypatch
):
    for number in (0, 1):
        assert do(folder, plan, number).state == MADE
    grid, job = toysteps.STEPS["grid"], plan.jobs[1]

    def then_deleted(work):
        rows = grid(work)
        folder.delete(job.kind, job.key)
        return rows

    monkeypatch.setitem(toysteps.STEPS, "grid", then_deleted)
    assert do(folder, plan, 2).state == MADE


def test_an_object_that_another_driver_deletes_because_it_is_damaged_makes_nothing(
    folder, plan, monkeypatch
):
    for number in (0, 1):
        assert do(folder, plan, number).state == MADE
    job = plan.jobs[1]
    before_reading(monkeypatch, "grid", lambda: folder.delete(job.kind, job.key, damaged=True))
    assert do(folder, plan, 2).state == DAMAGED
    assert folder.failed() == {}
