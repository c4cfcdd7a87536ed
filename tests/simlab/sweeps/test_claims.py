"""Claims: one owner at a time, and an owner that dies loses its claim."""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from simlab.errors import BusyError
from simlab.sweeps import claims, processes
from simlab.sweeps.watch import Watch, seems_alive
from support.lab.clocks import Clock
from support.lab.owner import wait_for

DAY = 86400


@pytest.fixture
def folder(tmp_path):
    found = tmp_path / "claims"
    found.mkdir()
    return found


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def dead_process() -> dict:
    """A claim of this machine whose process is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return {"place": processes.place(), "pid": process.pid, "started": "1", "token": "dead"}


def far_claim(path, token="far"):
    """Write the claim of a process of another machine, as a file of its own."""
    owner = {"place": ["elsewhere"], "pid": os.getpid(), "started": "1", "token": token}
    path.unlink(missing_ok=True)
    path.write_text(json.dumps(owner))
    return path


def watched(watch, path, clock, seconds):
    """Look at a claim every five seconds; return what the last look found."""
    for _ in range(0, seconds, 5):
        watch.is_dead(path)
        clock.pass_time(5)
    return watch.is_dead(path)


def test_one_process_claims(folder):
    mine = claims.claim(folder, "job")
    assert mine.is_held()
    assert claims.claim(folder, "job") is None
    mine.release()
    assert list(folder.glob("[!.]*")) == []
    assert claims.claim(folder, "job").is_held()


def test_a_dead_process_of_this_machine_loses_its_claim_at_once(folder):
    (folder / "job").write_text(json.dumps(dead_process()))
    assert Watch().is_dead(folder / "job")
    assert claims.claim(folder, "job").is_held()


def test_another_process_with_the_number_of_a_dead_one_is_not_its_owner(folder):
    owner = {**dead_process(), "pid": os.getpid()}
    (folder / "job").write_text(json.dumps(owner))
    assert claims.claim(folder, "job").is_held()


@pytest.mark.parametrize("ahead", [-DAY, 0, DAY])
def test_a_claim_that_does_not_change_has_no_owner_whatever_its_time(ahead, folder, clock):
    path = far_claim(folder / "job")
    os.utime(path, (time.time() + ahead,) * 2)
    watch = Watch(60)
    assert watched(watch, path, clock, 55) is None
    assert claims.claim(folder, "job") is None
    dead = watched(watch, path, clock, 5)
    assert claims.claim(folder, "job", dead).is_held()


@pytest.mark.parametrize("ahead", [-DAY, 0, DAY])
def test_a_claim_that_is_touched_has_an_owner_whatever_its_time(ahead, folder, clock):
    path = far_claim(folder / "job")
    watch = Watch(60)
    for beat in range(10):
        os.utime(path, (time.time() + ahead + beat,) * 2)
        assert watched(watch, path, clock, 30) is None


def test_an_observer_that_did_not_look_has_seen_nothing(folder, clock):
    path, watch = far_claim(folder / "job"), Watch(60)
    assert watched(watch, path, clock, 55) is None
    clock.pass_time(DAY)  # suspended, perhaps together with the owner
    assert watched(watch, path, clock, 55) is None
    assert watched(watch, path, clock, 5) is not None


def test_an_owner_that_continues_before_it_is_robbed_keeps_its_claim(folder, clock):
    path, watch = far_claim(folder / "job"), Watch(60)
    dead = watched(watch, path, clock, 60)
    os.utime(path, (1, 1))
    assert claims.claim(folder, "job", dead) is None
    dead = watched(watch, path, clock, 60)
    far_claim(path, "another")
    os.utime(path, (1, 1))
    assert claims.claim(folder, "job", dead) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '"abc"', '{"place": [], "pid": 1}'])
def test_a_claim_without_an_owner_ends_when_it_is_old(content, folder, clock):
    (folder / "job").write_text(content)
    assert claims.claim(folder, "job") is None
    dead = watched(Watch(60), folder / "job", clock, 60)
    assert claims.claim(folder, "job", dead).is_held()


def test_a_stopped_process_of_this_machine_keeps_its_claim(folder, clock):
    (folder / "job").write_text(
        json.dumps(
            {
                "place": processes.place(),
                "pid": os.getppid(),
                "started": processes.started(os.getppid()),
                "token": "parent",
            }
        )
    )
    assert watched(Watch(60), folder / "job", clock, DAY // 10) is None


def test_what_people_read_goes_by_the_time_of_the_claim(folder):
    path = far_claim(folder / "job")
    assert seems_alive(path)
    os.utime(path, (time.time() - claims.STALE_SECONDS - 1,) * 2)
    assert not seems_alive(path)
    path.write_text(json.dumps(dead_process()))
    assert not seems_alive(path)


def test_one_of_many_takes_over(folder):
    (folder / "job").write_text(json.dumps(dead_process()))
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(claims.claim(folder, "job"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one is not None for one in found) == 1


def test_an_owner_finds_out_that_it_lost_its_claim(folder):
    mine = claims.claim(folder, "job")
    far_claim(folder / "job")
    assert not mine.is_held()
    with pytest.raises(claims.LostError, match="found another's"), mine.locked():
        pass
    mine.release()
    assert (folder / "job").exists()  # the claim of the new owner stays
    (folder / "job").unlink()
    with pytest.raises(claims.LostError, match="found none"), mine.locked():
        pass


def test_nobody_takes_over_while_the_owner_holds_the_lock(folder, clock):
    mine = claims.claim(folder, "job")
    claims._BEATING.discard(mine)  # a touch meanwhile would change what stands in the claim
    dead = claims.look(mine.path).signature
    clock.pass_time(1)
    with mine.locked(), pytest.raises(BusyError), mine.locked(patience=-1):
        pass
    with mine.locked():
        patient = threading.Timer(0.2, lambda: clock.pass_time(10))
        patient.start()
        assert claims.claim(folder, "job", dead) is None
        patient.join()
    assert claims.claim(folder, "job", dead).is_held()
    assert not mine.is_held()


def test_a_lock_of_a_file_without_a_name_is_no_lock(folder):
    """A process waits for the lock of a claim, whose holder removes it and makes another."""
    mine = claims.claim(folder, "job")
    descriptor = os.open(mine.path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    found = []
    dead = claims.look(mine.path).signature
    waiting = threading.Thread(target=lambda: found.append(claims.claim(folder, "job", dead)))
    waiting.start()
    time.sleep(0.1)
    far_claim(mine.path)
    os.close(descriptor)
    waiting.join()
    assert found == [None]
    assert claims.look(mine.path).owner["token"] == "far"


def test_a_claim_whose_lock_another_holds_is_given_back_later(folder, monkeypatch):
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(claims, "_BEATING", claims._Beating())
    mine = claims.claim(folder, "job")
    descriptor = os.open(mine.path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    mine.release(patience=0)
    time.sleep(0.1)
    assert mine.path.exists()
    os.close(descriptor)
    wait_for(lambda: not mine.path.exists())


def test_a_claim_is_touched_while_its_owner_works(folder, monkeypatch):
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(claims, "_BEATING", claims._Beating())
    mine = claims.claim(folder, "job")
    os.utime(mine.path, (0, 0))
    until = time.monotonic() + 10
    while mine.path.stat().st_mtime == 0 and time.monotonic() < until:
        time.sleep(0.01)
    assert mine.path.stat().st_mtime > 0


def test_a_claim_that_was_taken_over_is_not_touched(folder, monkeypatch):
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(claims, "_BEATING", claims._Beating())
    lost = claims.claim(folder, "lost")
    far_claim(folder / "lost")
    held = claims.claim(folder, "held")
    for mine in (lost, held):
        os.utime(mine.path, (0, 0))
    until = time.monotonic() + 10
    while held.path.stat().st_mtime == 0 and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.1)
    assert held.path.stat().st_mtime > 0
    assert lost.path.stat().st_mtime == 0
