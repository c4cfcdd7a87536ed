"""The Slurm engine: real processes by an sbatch that runs whatever it is given, on this machine."""

import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from simlab.errors import UserError
from simlab.sweeps import engines
from simlab.sweeps.cluster import SlurmExecutor
from simlab.sweeps.job import Order
from simlab.sweeps.sweep import make_executor
from support.lab.owner import wait_for
from support.lab.slurms import NO_SUBMITIT, FakeSlurm, find_submitit
from support.lab.toysweep import contents, rows, run_noting, run_toy, runs, same_as, toy_plan

needs_submitit = pytest.mark.skipif(
    not find_submitit(), reason=f"sweeps on Slurm are not tested: {NO_SUBMITIT}"
)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Commands of Slurm, and a submitit that waits a second for the result of a dead task."""
    monkeypatch.setattr("submitit.core.core.Job._results_timeout_s", 1)
    fake = FakeSlurm(tmp_path / "slurm", monkeypatch)
    yield fake
    fake.kill()


def run_on_slurm(root, plan, **options):
    return run_noting(root, plan, partial(SlurmExecutor, **options))


@needs_submitit
@pytest.mark.slow
def test_the_plan_runs_as_job_arrays(slurm, tmp_path):
    """Files and rows are those of worker processes; each job runs once."""
    root, local = tmp_path / "out", tmp_path / "local"
    plan = toy_plan(root, seeds=3)
    outcome, _ = run_on_slurm(root, plan, resources=["grid:memory=1GB,gpus=1"])
    assert sum(outcome.done.values()) == len(plan)
    assert set(runs(root, "end").values()) == {1}
    scripts = slurm.scripts()
    for line in ("--array=0-2%3", "--job-name=simcore-finetune", "--time=240", "--mem=5723M"):
        assert f"#SBATCH {line}\n" in scripts[0]
    assert "export OMP_NUM_THREADS=1" in scripts[0]
    assert "--gpus-per-node" not in scripts[0]
    grids = [text for text in scripts if "--job-name=simcore-grid" in text]
    assert all("--gpus-per-node=1\n" in text and "--mem=954M\n" in text for text in grids)
    assert grids
    assert len(scripts) < len(plan)
    other = toy_plan(local, seeds=3)
    run_toy(local, other)
    assert same_as((rows(local, other), contents(local)), root, plan)
    assert [file for file in root.rglob("*") if file.suffix in (".pkl", ".sh")] == []


@needs_submitit
@pytest.mark.slow
def test_tasks_that_are_warned_cancelled_and_killed_are_no_fault_of_their_jobs(slurm, tmp_path):
    """Slurm warns a task 90 seconds before its end: a job that needs no more than those is done."""

    def disturb():
        wait_for((tmp_path / "runs.txt").exists)
        os.kill(int((tmp_path / "runs.txt").read_text().split()[2]), signal.SIGUSR2)
        time.sleep(0.5)
        (slurm.folder / "1.state").write_text("CANCELLED by 0")
        slurm.kill()
        (tmp_path / "go").touch()

    thread = threading.Thread(target=disturb)
    thread.start()
    plan = toy_plan(tmp_path, seeds=1, wait=str(tmp_path / "go"), fate={"rows0": ["SIGKILL"]})
    outcome, deaths = run_on_slurm(tmp_path, plan, slurm=["time=5", "mem_per_cpu=4G"])
    thread.join()
    assert sum(outcome.done.values()) == len(plan)
    assert [death.outside for death in deaths] == [True, False]
    assert "ended as FAILED" in str(deaths[1])
    for script in slurm.scripts():  # the memory of a core takes the place of the usual one
        assert "--time=5\n" in script
        assert "--mem-per-cpu=4G\n" in script
        assert "--mem=" not in script  # sbatch refuses both


@needs_submitit
@pytest.mark.parametrize(
    ("state", "outside", "words"),
    [
        ("TIMEOUT", False, "ran for its whole time; choose a longer `time`"),
        ("OUT_OF_MEMORY", False, "took more memory than it asked for; choose a larger"),
        ("PREEMPTED", True, "ended as PREEMPTED"),
        ("NODE_FAIL", True, "ended as NODE_FAIL"),
    ],
)
def test_how_a_task_ended_is_told(state, outside, words):
    from simlab.sweeps.cluster import death_of

    watcher = SimpleNamespace(get_state=lambda *_, **__: state)
    death = death_of(SimpleNamespace(watcher=watcher, job_id="7_0"), ValueError("no output"))
    assert (death.outside, words in str(death)) == (outside, True), str(death)


@needs_submitit
@pytest.mark.slow
def test_tasks_end_with_their_driver(slurm, tmp_path, monkeypatch):
    """Those that run are cancelled; one that begins later finds nobody, and does nothing."""
    found = []

    class Ending(SlurmExecutor):
        def collect(self, calls):
            found.append((self.root, self.token))
            if (tmp_path / "runs.txt").exists():
                raise UserError("enough")
            return super().collect(calls)

    plan = toy_plan(tmp_path, seeds=1, wait=str(tmp_path / "never"))
    with pytest.raises(UserError, match="enough"):
        run_toy(tmp_path, plan, start=lambda folder: Ending(folder.root))
    assert slurm.states() == {"1": "CANCELLED by 0"}
    monkeypatch.setattr(engines, "_ID_SECONDS", 0.2)
    order = Order(str(found[0][0]), plan.jobs[0], ())
    late = engines.answer(lambda _: pytest.fail("it works"), order, found[0][1], ".")
    assert "does not see a file of its driver" in str(late)


@needs_submitit
@pytest.mark.slow
def test_a_refusal_of_sbatch_is_one_line(slurm, tmp_path):
    (slurm.folder / "refuse").write_text("sbatch: error: invalid partition specified: gpux")
    with pytest.raises(UserError, match=r"^engine='slurm': wanted sbatch to take jobs of kind fin"):
        run_on_slurm(tmp_path / "out", toy_plan(tmp_path, seeds=2))


@needs_submitit
def test_options():
    from simlab.sweeps.cluster import parse_slurm

    assert parse_slurm(["partition=gpu", "time=600", "gres = gpu:a100:1"]) == {
        "partition": "gpu", "time": 600, "gres": "gpu:a100:1"
    }  # fmt: skip
    for text, words in {
        "partion=gpu": "did you mean 'partition'",
        "time=1h": "wanted a number of minutes",
        "nodes=2": "wanted NAME=VALUE",
        "setup=module load cuda": "wanted NAME=VALUE",
        "srun_args=--mpi": "wanted NAME=VALUE",
        "partition": "wanted NAME=VALUE",
    }.items():
        with pytest.raises(UserError, match=f"slurm='{text}'.*{words}"):
            SlurmExecutor("out", slurm=(text,))


@needs_submitit
def test_a_machine_without_slurm(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="wanted a machine that submits to Slurm, found: Could not"):
        run_on_slurm(tmp_path / "out", toy_plan(tmp_path, seeds=1))


def test_options_of_other_engines(monkeypatch):
    for engine, option in (("local", "slurm"), ("ray", "slurm"), ("slurm", "address")):
        words = f"^{option}: wanted engine='.*beside it, found {engine}"
        given = {"address": None, "resources": (), "slurm": (), option: ("a=b",)}
        with pytest.raises(UserError, match=words):
            make_executor(engine, Path("out"), **given)
    monkeypatch.setitem(sys.modules, "submitit", None)
    extras = {"slurm": {"submitit": "submitit>=1.5"}}
    monkeypatch.setattr("simcore._optional._extras", lambda: extras)
    with pytest.raises(UserError, match=r"wanted the package submitit, found.*pip install"):
        SlurmExecutor("out")
