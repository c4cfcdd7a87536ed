"""One owner per output: real processes on one --out, a killed owner, and the races in between."""

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from simlab.errors import BusyError, WriteError
from simlab.results.reading import read_results
from simlab.store.jobs import owned
from support.lab import owner
from support.lab.disks import file_limit
from support.lab.owner import make, wait_for

KINDS = ("folder", "file")
OWNER = Path(owner.__file__)


class Workplace:
    """An output, and processes that make it, held at work until `go`."""

    def __init__(self, folder, kind):
        self.kind, self.place, self.signs = kind, folder / "place", folder / "signs"
        self.out = self.place / ("out.parquet" if kind == "file" else "out")
        self.place.mkdir()
        self.signs.mkdir()
        self.processes = []

    def start(self, key="a", *options):
        process = subprocess.Popen(
            [sys.executable, OWNER, self.kind, self.out, key, self.signs, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def start_at_work(self, key="a", *options):
        """Start a process and return when it is at work."""
        process = self.start(key, *options)
        wait_for((self.signs / f"begun-{process.pid}").exists)
        return process

    def go(self):
        (self.signs / "go").touch()

    def check_made(self, key="a"):
        """Check for the output of a process that was alone with `key`, and for nothing else."""
        assert [path.name for path in self.place.iterdir()] == [self.out.name]
        if self.kind == "file":
            frame = read_results(self.out)
            assert frame["value"].tolist() == list(range(1000))
            assert set(frame["measure"]) == {key}
        else:
            content = {path.name: path.read_text() for path in self.out.iterdir()}
            assert f'"key": "{key}"' in content.pop("job.json")
            assert content == {"half": key, "whole": key * 1000}


@pytest.fixture(params=KINDS)
def workplace(request, tmp_path):
    place = Workplace(tmp_path, request.param)
    yield place
    for child in place.signs.glob("child-*"):
        os.kill(int(child.name.removeprefix("child-")), signal.SIGKILL)
    for process in place.processes:
        process.kill()
        process.communicate()


def end(process):
    """Return exit code, output and errors of a process that ends by itself."""
    printed, errors = process.communicate(timeout=120)
    return process.returncode, printed.strip(), errors.splitlines()


OF_TWO = [("a", "b"), *(pytest.param(*keys, marks=pytest.mark.deep) for keys in ("aa", "ba"))]


@pytest.mark.parametrize(("first_key", "second_key"), OF_TWO)
def test_the_second_is_told_who_is_at_work(workplace, first_key, second_key):
    first = workplace.start_at_work(first_key)
    code, printed, errors = end(workplace.start(second_key))
    assert (code, printed, len(errors)) == (2, "", 1)
    assert errors[0].startswith(
        f"error: out='{workplace.out}': wanted one process at a time, found "
        f"process {first.pid} on {socket.gethostname()} since 20"
    )
    assert f"(`owner.py {workplace.kind} {workplace.out} {first_key} " in errors[0]
    assert errors[0].endswith("; wait for it or choose another out")
    workplace.go()
    assert end(first) == (0, "made", [])
    workplace.check_made(first_key)
    assert end(workplace.start(second_key)) == (
        *(0, "done before" if first_key == second_key else "made"),
        [],
    )
    workplace.check_made(second_key)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="alone", marks=pytest.mark.deep),
        pytest.param(("fork",), id="with a forked child"),
    ],
)
def test_a_killed_owner_does_not_stand_in_the_way(workplace, options):
    first = workplace.start_at_work("a", *options)
    first.kill()
    first.wait()
    workplace.go()
    assert end(workplace.start()) == (0, "made", [])
    workplace.check_made()


@pytest.mark.deep
def test_many_at_once(workplace):
    workplace.go()
    outcomes = [end(process) for process in [workplace.start("ab"[i % 2]) for i in range(6)]]
    assert all(
        outcome in ((0, "made", []), (0, "done before", [])) or outcome[0] == 2
        for outcome in outcomes
    ), outcomes
    busy = [errors for code, _, errors in outcomes if code == 2]
    assert all(len(errors) == 1 and "one process at a time" in errors[0] for errors in busy)
    left = end(workplace.start("a"))
    assert left[0] == 0, left
    workplace.check_made("a")


def test_a_finished_output_needs_no_lock(workplace):
    workplace.go()
    assert end(workplace.start()) == (0, "made", [])
    with owned(workplace.out):
        assert make(workplace.kind, workplace.out, "a", lambda: None).skipped
        with pytest.raises(BusyError):
            make(workplace.kind, workplace.out, "b", lambda: None)


def test_what_another_process_finished_just_now_is_done(workplace, monkeypatch):
    """The other process finishes after this process has looked and before it takes the lock."""
    from simlab.results import tables
    from simlab.store import jobs

    def owned_late(output, **options):
        monkeypatch.undo()
        make(workplace.kind, output, "a", lambda: None)
        return owned(output, **options)

    for module in (jobs, tables):
        monkeypatch.setattr(module, "owned", owned_late)
    assert make(workplace.kind, workplace.out, "a", lambda: None).skipped
    workplace.check_made()


def test_owners_take_turns(tmp_path):
    """The name of the lock appears and disappears, and never has two owners: see `store/jobs`."""
    inside, turns, wanted = tmp_path / "inside", [], 40

    def take_turns():
        mine = 0
        while mine < wanted:
            try:
                with owned(tmp_path / "out"):
                    inside.touch(exist_ok=False)  # raises if another owner is here
                    time.sleep(0)
                    inside.unlink()
                    mine += 1
            except BusyError:
                pass
        turns.append(mine)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(take_turns) for _ in range(4)]:
            future.result(timeout=120)
    assert turns == [wanted] * 4
    assert not list(tmp_path.iterdir())


def test_the_name_goes_before_the_lock(tmp_path, monkeypatch):
    """After the unlock, the name would belong to the next owner."""
    lock, flock, there = tmp_path / ".out.lock", fcntl.flock, []

    def watched_flock(descriptor, operation):
        if operation == fcntl.LOCK_UN:
            there.append(lock.exists())
        return flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", watched_flock)
    with owned(tmp_path / "out"):
        assert lock.exists()
    assert there == [False]


def test_a_lock_that_was_removed_by_hand_is_not_removed_twice(tmp_path):
    lock = tmp_path / ".out.lock"
    with owned(tmp_path / "out"):
        lock.unlink()
        lock.write_text("somebody else's")
    assert lock.read_text() == "somebody else's"


@pytest.mark.parametrize("name", ["link", "real/..", "."])
def test_one_output_under_two_names_has_one_owner(tmp_path, monkeypatch, name):
    real = {"link": tmp_path / "real"}.get(name, tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    for first, second in ((real, Path(name)), (Path(name), real)):
        with owned(first):
            assert (real.parent / f".{real.name}.lock").is_file()
            with pytest.raises(BusyError), owned(second):
                pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


def test_a_forked_child_leaves_its_parents_claim(tmp_path):
    """The child runs the end of the `with` block, too."""
    lock, child = tmp_path / ".out.lock", None
    try:
        with owned(tmp_path / "out"):
            child = os.fork()
            if child:
                assert os.waitpid(child, 0)[1] == 0
                assert lock.exists()
                with pytest.raises(BusyError), owned(tmp_path / "out"):
                    pass
    finally:
        if child == 0:
            os._exit(0)
    assert not lock.exists()


def test_an_owner_that_has_not_signed_yet_is_another_process(tmp_path):
    with (tmp_path / ".out.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with (
            pytest.raises(BusyError, match=r"^out='.*/out': .* found another process; wait"),
            owned(tmp_path / "out"),
        ):
            pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.ESTALE])
def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch, number):
    def flock(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    match = rf"/out: wanted to write there, found: {os.strerror(number)} \("
    with pytest.raises(WriteError, match=match), owned(tmp_path / "out"):
        pass


def test_no_room_for_the_signature(tmp_path):
    with (
        file_limit(10),
        pytest.raises(WriteError, match=r"/out: wanted to write there, found: File too large"),
        owned(tmp_path / "out"),
    ):
        pass
    assert not list(tmp_path.iterdir())
