"""Jobs of real worker processes: order, failures, crashes, damage, two drivers, disk space."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from simlab.sweeps.execute import MOST_ATTEMPTS
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.local import LocalEngine
from simlab.sweeps.status import read_status
from simlab.sweeps.survey import write_plan
from support.lab.owner import wait_for
from support.lab.toysweep import run_toy, runs, same_as, start_driver, toy_plan


def test_jobs_run_depth_first(tmp_path):
    plan = toy_plan(tmp_path, seeds=2)
    run_toy(tmp_path, plan)
    begun = list(runs(tmp_path, "begin"))
    of_one = ("ft{}", "rows{}", "grid{}", "blocks{}")
    assert begun == [*(name.format(seed) for seed in (0, 1) for name in of_one), "joint"]


def test_what_is_done_is_not_done_again(tmp_path, whole):
    plan = toy_plan(tmp_path)
    run_toy(tmp_path, plan, workers=2)
    again = run_toy(tmp_path, plan)
    assert not again.done
    assert same_as(whole, tmp_path, plan)
    assert set(runs(tmp_path, "end").values()) == {1}


def test_a_failure_stays_local(tmp_path):
    plan = toy_plan(tmp_path, seeds=3, fate={"rows1": "raise"})
    outcome = run_toy(tmp_path, plan)
    assert outcome.failed == [("extract rows1", "RuntimeError: this step fails")]
    assert outcome.waiting == 3  # the grid of this seed, its blocks, and the joint grid
    assert runs(tmp_path, "end").keys() >= {"blocks0", "ft1", "blocks2"}
    (record,) = SweepFolder(tmp_path).failed().values()
    assert "toysteps.py" in record["traceback"]
    assert record["params"] == {"name": "rows1"}
    status = read_status(tmp_path)
    assert (status.total.failed, status.total.waiting) == (1, 3)
    assert status.last_error == "extract rows1: RuntimeError: this step fails"
    # Another run does not try an exception again, unless it is told to.
    assert run_toy(tmp_path, plan).failed == outcome.failed
    assert runs(tmp_path, "begin")["rows1"] == 1
    write_plan(SweepFolder(tmp_path), toy_plan(tmp_path, seeds=1), "all")
    assert read_status(tmp_path).last_error is None  # this plan has no such job
    healed = run_toy(tmp_path, toy_plan(tmp_path, seeds=3), retry_failed=True)
    assert (healed.failed, healed.waiting) == ([], 0)


def test_a_crash_is_tried_again(tmp_path, whole):
    plan = toy_plan(tmp_path, fate={"rows1": ["SIGKILL"]})
    assert not run_toy(tmp_path, plan, workers=2).failed
    assert runs(tmp_path, "begin")["rows1"] == 2
    assert same_as(whole, tmp_path, plan)


def test_a_step_that_finds_too_many_open_files_is_tried_again(tmp_path, whole):
    plan = toy_plan(tmp_path, fate={"rows1": "no more files"})
    outcome = run_toy(tmp_path, plan)
    assert (outcome.failed, outcome.waiting) == ([], 0)
    assert runs(tmp_path, "begin")["rows1"] == 2
    assert same_as(whole, tmp_path, plan)


def test_a_crash_is_tried_again_three_times_at_most(tmp_path):
    plan = toy_plan(tmp_path, seeds=2, fate={"rows1": "crash"})
    outcome = run_toy(tmp_path, plan)
    assert outcome.failed == [("extract rows1", "the worker ended with signal SIGKILL")]
    assert runs(tmp_path, "begin")["rows1"] == 3
    assert run_toy(tmp_path, plan).failed == outcome.failed
    assert runs(tmp_path, "begin")["rows1"] == 3


def test_a_worker_that_is_told_to_end_is_no_crash(tmp_path):
    """A queue preempts the workers of a job as often as a job may crash."""
    ends = ["SIGTERM", "SIGHUP", "SIGINT"]
    assert len(ends) == MOST_ATTEMPTS
    plan = toy_plan(tmp_path, seeds=1, fate={"rows0": [*ends, "SIGKILL"]})
    records = []

    class Seen(LocalEngine):
        def submit(self, order):
            records.append(SweepFolder(tmp_path).failure(order.job.key))
            super().submit(order)

    outcome = run_toy(tmp_path, plan, start=lambda f: Seen(1, f.log, threads=1))
    assert (outcome.failed, outcome.waiting) == ([], 0)
    assert runs(tmp_path, "begin")["rows0"] == len(ends) + 2
    (crash,) = filter(None, records)
    assert (crash["error"], crash["attempts"]) == ("the worker ended with signal SIGKILL", 1)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_driver_with_one_line(number, code, tmp_path, whole):
    driver = start_driver(tmp_path, wait=str(tmp_path / "go"), stderr=subprocess.PIPE)
    wait_for((tmp_path / "runs.txt").exists)
    driver.send_signal(number)
    _, errors = driver.communicate()
    assert driver.returncode == code
    (line,) = errors.decode().split("\n")[1:-1]
    assert line.startswith("interrupted: ")
    (tmp_path / "go").touch()
    plan = toy_plan(tmp_path)
    assert not run_toy(tmp_path, plan).failed
    assert same_as(whole, tmp_path, plan)


def kill_something(driver, root: Path, rng) -> None:
    """Kill the driver, or one of the workers that have a claim."""
    targets = [driver.pid]
    for claim in (root / "claims").glob("[!.]*"):
        text = claim.read_text() if claim.exists() else ""
        targets += [json.loads(text)["pid"]] if text else []
    with contextlib.suppress(ProcessLookupError):
        os.kill(targets[rng.integers(len(targets))], signal.SIGKILL)


@pytest.mark.slow
def test_five_kills_and_then_the_same_bits(tmp_path, whole):
    import numpy as np

    rng = np.random.default_rng(5)
    plan = toy_plan(tmp_path)
    kills = 0
    while kills < 5:
        driver = start_driver(tmp_path, workers=2, seconds=0.05)
        begun = (tmp_path / "runs.txt").stat().st_size if kills else 0
        while driver.poll() is None and kills < 5:
            if (tmp_path / "runs.txt").exists() and (tmp_path / "runs.txt").stat().st_size > begun:
                time.sleep(rng.uniform(0, 0.3))
                begun = (tmp_path / "runs.txt").stat().st_size
                kill_something(driver, tmp_path, rng)
                kills += 1
            time.sleep(0.005)
        if kills == 5 and driver.poll() is None:
            driver.kill()
        if driver.wait() == 0:
            break
    run_toy(tmp_path, plan, workers=2)
    assert same_as(whole, tmp_path, plan)
    begun, ended = runs(tmp_path, "begin"), runs(tmp_path, "end")
    assert sum(begun.values()) <= len(plan) + 3 * kills
    assert not list((tmp_path / "work").iterdir())
    assert sum(ended.values()) - len(ended) <= kills  # jobs that ended twice were not published
