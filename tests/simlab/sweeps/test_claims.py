"""Claims: one owner at a time, and an owner that dies loses its claim."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from simlab.sweeps import claims


@pytest.fixture
def folder(tmp_path):
    found = tmp_path / "claims"
    found.mkdir()
    return found


def dead_process() -> dict:
    """A claim of this machine whose process is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return {"place": claims._place(), "pid": process.pid, "started": "1", "token": "dead"}


def test_one_process_claims(folder):
    mine = claims.claim(folder, "job")
    assert mine.is_held()
    assert claims.claim(folder, "job") is None
    mine.release()
    assert list(folder.glob("[!.]*")) == []
    assert claims.claim(folder, "job").is_held()


def test_a_dead_process_of_this_machine_loses_its_claim_at_once(folder):
    (folder / "job").write_text(json.dumps(dead_process()))
    assert claims.is_dead(folder / "job")
    assert claims.claim(folder, "job").is_held()


def test_another_process_with_the_number_of_a_dead_one_is_not_its_owner(folder):
    owner = {**dead_process(), "pid": os.getpid()}
    (folder / "job").write_text(json.dumps(owner))
    assert claims.claim(folder, "job").is_held()


def test_another_machine_keeps_its_claim_while_it_touches_it(folder):
    path = folder / "job"
    path.write_text(json.dumps({**dead_process(), "place": ["elsewhere"]}))
    assert claims.claim(folder, "job", stale=60) is None
    os.utime(path, (time.time() - 61,) * 2)
    assert claims.claim(folder, "job", stale=60).is_held()


def test_a_claim_that_was_never_written_ends_when_it_is_old(folder):
    (folder / "job").touch()
    assert claims.claim(folder, "job", stale=60) is None
    os.utime(folder / "job", (time.time() - 61,) * 2)
    assert claims.claim(folder, "job", stale=60).is_held()


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
    (folder / "job").write_text(json.dumps({**dead_process(), "token": "another"}))
    assert not mine.is_held()
    mine.release()
    assert (folder / "job").exists()  # the claim of the new owner stays


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
    (folder / "lost").write_text(json.dumps({**dead_process(), "token": "another"}))
    held = claims.claim(folder, "held")
    for mine in (lost, held):
        os.utime(mine.path, (0, 0))
    until = time.monotonic() + 10
    while held.path.stat().st_mtime == 0 and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.1)
    assert held.path.stat().st_mtime > 0
    assert lost.path.stat().st_mtime == 0
