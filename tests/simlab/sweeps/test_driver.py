"""Jobs of real worker processes: order, failures, crashes, signals, and processes in the way."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from simlab.errors import BusyError, ReadError
from simlab.sweeps import driver as module
from simlab.sweeps import job as jobs
from simlab.sweeps.driver import MOST_ATTEMPTS
from simlab.sweeps.job import Answer
from simlab.sweeps.outputs import SweepFolder
from simlab.sweeps.pool import Pool
from simlab.sweeps.status import read_status
from support.lab import toysteps
from support.lab.disks import no_more_files
from support.lab.inline import Inline
from support.lab.owner import wait_for
from support.lab.toysweep import run_toy, runs, same_as, start_driver, toy_plan


def run_here(root, plan, **how):
    """Run a plan without worker processes."""
    return run_toy(root, plan, start=lambda _: Inline(), **how)


def test_jobs_run_depth_first_and_once(tmp_path):
    plan = toy_plan(tmp_path, seeds=2)
    run_here(tmp_path, plan)
    of_one = ("ft{}", "rows{}", "grid{}", "blocks{}")
    assert list(runs(tmp_path, "begin")) == [
        *(name.format(seed) for seed in (0, 1) for name in of_one),
        "joint",
    ]
    assert not run_here(tmp_path, plan).done
    assert set(runs(tmp_path, "end").values()) == {1}


def test_a_failure_stays_local(tmp_path):
    plan = toy_plan(tmp_path, seeds=3, fate={"rows1": "raise"})
    outcome = run_here(tmp_path, plan)
    assert outcome.failed == (("extract rows1", "RuntimeError: this step fails"),)
    assert outcome.waiting == 3  # the grid of this seed, its blocks, and the joint grid
    assert runs(tmp_path, "end").keys() >= {"blocks0", "ft1", "blocks2"}
    (record,) = SweepFolder(tmp_path).failed().values()
    assert "toysteps.py" in record["traceback"]
    assert record["params"] == {"name": "rows1"}
    status = read_status(tmp_path)
    assert (status.total.failed, status.total.waiting) == (1, 3)
    assert status.last_error == "extract rows1: RuntimeError: this step fails"
    # Another run does not try an exception again, unless it is told to.
    assert run_here(tmp_path, plan).failed == outcome.failed
    assert runs(tmp_path, "begin")["rows1"] == 1
    healed = run_here(tmp_path, toy_plan(tmp_path, seeds=3), retry_failed=True)
    assert (healed.failed, healed.waiting) == ((), 0)
    assert read_status(tmp_path).last_error is None


def test_processes_that_die_are_tried_again_as_often_as_their_end_allows(
    tmp_path, whole, monkeypatch
):
    """A queue preempts the workers of a job more often than a job may crash."""
    monkeypatch.setitem(module._MOST, "outside", MOST_ATTEMPTS + 2)
    ends = ["SIGTERM", "SIGHUP", "SIGINT"]
    assert len(ends) == MOST_ATTEMPTS < module.MOST_ENDS
    fate = {
        "rows0": ["SIGKILL"],
        "rows1": "crash",
        "rows2": [*ends, "SIGKILL"],
        "rows3": ["SIGTERM"] * (MOST_ATTEMPTS + 2),
    }
    plan = toy_plan(tmp_path, fate=fate)
    outcome = run_toy(tmp_path, plan, workers=2)
    crashed = ("extract rows1", "the worker ended with signal SIGKILL")
    assert outcome.failed == (crashed, ("extract rows3", "the worker ended with signal SIGTERM"))
    begun = runs(tmp_path, "begin")
    assert [begun[f"rows{seed}"] for seed in range(4)] == [2, 3, 5, MOST_ATTEMPTS + 2]
    # The next command tries again what was ended from outside, and no crash.
    assert run_toy(tmp_path, plan).failed == (crashed,)
    plan = toy_plan(tmp_path)
    assert run_here(tmp_path, plan, retry_failed=True).failed == ()
    assert same_as(whole, tmp_path, plan)


def test_a_worker_that_hangs_at_its_end_is_killed(tmp_path, monkeypatch):
    """It has closed its pipe, and CUDA or a dead mount does not let it end."""
    monkeypatch.setattr("simlab.sweeps.pool._END_SECONDS", 0.2)
    pool = Pool(1, tmp_path, threads=1)
    # A pipe that is closed stays open as long as the thread that listens reads from it.
    hangs = """
import os, socket, sys
os._exit = lambda _: __import__("time").sleep(60)
socket.socket(fileno=int(sys.argv[1])).shutdown(socket.SHUT_RDWR)
"""
    with pytest.raises(jobs.Died, match="signal SIGKILL"):
        pool.submit(exec, hangs).result(120)
    pool.shutdown()


def test_an_output_that_was_published_before_its_worker_died_counts(tmp_path):
    class Dying(Inline):
        """Publishes, and dies before it answers."""

        def submit(self, fn, order):
            fn(order)
            future = super().submit(lambda: 1 / 0)
            future._exception = jobs.Died("the worker ended", outside=False)
            return future

    plan = toy_plan(tmp_path, seeds=1)
    outcome = run_toy(tmp_path, plan, start=lambda _: Dying())
    assert (outcome.failed, outcome.waiting) == ((), 0)
    assert set(runs(tmp_path, "begin").values()) == {1}
    kinds = [kind for kind, _ in SweepFolder(tmp_path).finished()]
    assert len(kinds) == len(plan)


def test_a_step_that_finds_too_many_open_files_is_tried_again(tmp_path, whole):
    plan = toy_plan(tmp_path, fate={"rows1": "no more files"})
    outcome = run_here(tmp_path, plan)
    assert (outcome.failed, outcome.waiting) == ((), 0)
    assert runs(tmp_path, "begin")["rows1"] == 2
    assert same_as(whole, tmp_path, plan)


def test_a_job_that_cannot_read_ends_the_command_after_three_attempts(tmp_path, monkeypatch):
    def refuse(work):
        toysteps._begin(work)
        with no_more_files():
            return toysteps.np.load(next(work.inputs[0].glob("*.npy")))

    monkeypatch.setitem(toysteps.STEPS, "extract", refuse)
    with pytest.raises(ReadError, match="Too many open files"):
        run_toy(tmp_path, toy_plan(tmp_path, seeds=1), start=lambda _: Inline())
    assert runs(tmp_path, "begin")["rows0"] == MOST_ATTEMPTS
    assert SweepFolder(tmp_path).failed() == {}


@pytest.mark.parametrize("longest", [30.0, 0.5])
def test_a_process_that_no_driver_waits_for_is_waited_for(longest, tmp_path, monkeypatch, capsys):
    """A training that a killed driver left on another node: tried now and then, for an hour."""
    plan = toy_plan(tmp_path, seeds=1)
    begun = []

    def busy(work):
        begun.append(time.monotonic())
        if longest < 1 or time.monotonic() - begun[0] < 0.5:  # then it ends
            raise BusyError("--out: wanted one process at a time, found process 1 on faraway")
        return toysteps.finetune(work)

    monkeypatch.setitem(toysteps.STEPS, "finetune", busy)
    monkeypatch.setattr(module, "BUSY_SECONDS", longest)
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.04)
    outcome = run_here(tmp_path, plan)
    assert 2 < len(begun) < 15
    assert capsys.readouterr().err.count("waits: ") == 1
    if longest < 1:
        (failed,) = outcome.failed
        assert "process 1 on faraway" in failed[1]
        monkeypatch.setitem(toysteps.STEPS, "finetune", toysteps.finetune)
        outcome = run_here(tmp_path, plan)
    assert (outcome.failed, outcome.waiting) == ((), 0)


@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGINT, 130, marks=pytest.mark.deep), (signal.SIGTERM, 143)],
)
def test_a_driver_at_work_is_told_and_ended_by_a_signal(number, code, tmp_path, whole):
    """A status names its jobs, a second command its process, and its end is one line."""
    how = {"wait": str(tmp_path / "go"), "workers": 2, "stderr": subprocess.PIPE}
    driver = start_driver(tmp_path, **how)
    plan = toy_plan(tmp_path)
    try:
        wait_for((tmp_path / "runs.txt").exists)
        wait_for(lambda: read_status(tmp_path).total.running == 2)
        place = f"process {driver.pid} on .* since"
        with pytest.raises(BusyError, match=f"wanted one process at a time, found .*{place}"):
            run_here(tmp_path, plan)
    finally:
        driver.send_signal(number)
        _, errors = driver.communicate()
    assert driver.returncode == code
    lines = [line for line in errors.decode().split("\n") if line and " sweep " not in line]
    assert [line.partition(": ")[0] for line in lines] == ["interrupted"]
    assert read_status(tmp_path).total.running == 0
    (tmp_path / "go").touch()
    assert not run_here(tmp_path, plan).failed
    assert same_as(whole, tmp_path, plan)


@pytest.mark.slow
def test_storms_of_kills_and_freezes_and_then_the_same_bits(tmp_path, whole):
    import numpy as np

    rng, seen = np.random.default_rng(5), set()

    def children(process):
        with suppress(psutil.NoSuchProcess):
            seen.update(psutil.Process(process.pid).children())
        return [worker for worker in seen if worker.is_running()]

    def resume(worker):
        with suppress(psutil.NoSuchProcess):
            worker.resume()

    plan = toy_plan(tmp_path)
    for _ in range(8):
        driver = start_driver(tmp_path, workers=2, seconds=0.05)
        deadline = time.monotonic() + rng.uniform(0.5, 4)
        while driver.poll() is None and time.monotonic() < deadline:
            time.sleep(rng.uniform(0, 0.5))
            workers = sorted(children(driver), key=lambda worker: worker.pid)
            victim = workers[rng.integers(len(workers))] if workers else None
            with suppress(psutil.NoSuchProcess):
                if victim and rng.random() < 0.5:
                    victim.suspend()
                    threading.Timer(0.5, resume, [victim]).start()
                elif victim:
                    victim.kill()
        children(driver)
        driver.kill()
        if driver.wait() == 0:
            break
    # A worker that was frozen when its driver was killed ends when it goes on.
    assert psutil.wait_procs(seen, timeout=60)[1] == []
    assert run_toy(tmp_path, plan, workers=2, retry_failed=True).failed == ()
    assert same_as(whole, tmp_path, plan)
    assert not list((tmp_path / "work").iterdir())


def test_files_of_a_folder_follow_the_umask(tmp_path):
    before = os.umask(0o002)
    try:
        run_here(tmp_path, toy_plan(tmp_path, seeds=1, fate={"rows0": "raise"}))
    finally:
        os.umask(before)
    files = [*(tmp_path / "log").glob("*.jsonl"), *(tmp_path / "failures").iterdir()]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o664}


def test_an_error_takes_names_that_are_no_text():
    error = ValueError("no such file: " + os.fsdecode(b"caf\xe9.csv"))  # not its `repr`
    assert r"caf\udce9.csv" in jobs.last_line(error)


def test_a_driver_loads_neither_torch_nor_the_reader_of_sweep_files():
    code = "import sys, simlab.sweeps.driver as _; print({*sys.modules})"
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    printed = subprocess.check_output([sys.executable, "-c", code], env={**os.environ, **paths})
    assert not {"torch", "pydantic", "simlab.sweeps.spec"} & eval(printed)


def test_an_answer_that_is_late_finds_its_input_made_again(tmp_path, monkeypatch):
    """Of two jobs that found one input damaged, the second tells of it when it is whole."""
    plan = toy_plan(tmp_path, seeds=2)
    told = []

    class Late(Inline):
        slots = 2

        def submit(self, fn, order):
            name = order.job.params["name"]
            if name in ("grid0", "joint") and told.count(name) == 0:
                told.append(name)
                need = order.needs[0]
                return super().submit(lambda: Answer(jobs.DAMAGED, 0.0, "damaged", damaged=need))
            return super().submit(fn, order)

    outcome = run_toy(tmp_path, plan, start=lambda _: Late())
    assert (outcome.failed, outcome.waiting) == ((), 0)
    assert sorted(told) == ["grid0", "joint"]
    assert Path(tmp_path / "runs.txt").read_text().count("begin rows0 ") <= 3


def killed(folder, step):
    """Kill sweeps before every `step`-th operation; return their number, and what went wrong."""
    command = [sys.executable, "-m", "support.lab.kills", str(folder), str(step)]
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    most, *wrong = done.stdout.splitlines()
    return int(most), wrong


def test_a_sweep_that_dies_before_any_operation_and_is_repeated_has_the_same_bits(tmp_path):
    most, wrong = killed(tmp_path, 37)
    assert most > 100
    assert wrong == []


@pytest.mark.slow
def test_a_kill_before_each_operation(tmp_path):
    assert killed(tmp_path, 1)[1] == []
