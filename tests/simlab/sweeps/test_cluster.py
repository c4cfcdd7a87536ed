"""The Ray engine: two real nodes, one of which passes for another machine and is killed at work."""

import subprocess
import sys
import threading
from functools import partial

import psutil
import pytest

from simlab import Sweep
from simlab.errors import UserError
from simlab.store.files import hash_file
from simlab.sweeps.cluster import RayExecutor
from support.lab.commandline import check_refused
from support.lab.owner import wait_for
from support.lab.rayclusters import FAR, NO_RAY, can_pretend, find_ray, gone, ray_cluster
from support.lab.toysweep import run_noting, run_toy, runs, same_as, start_driver, toy_plan

pytestmark = pytest.mark.slow

needs_ray = pytest.mark.skipif(not find_ray(), reason=f"sweeps on Ray are not tested: {NO_RAY}")
needs_machines = pytest.mark.skipif(
    not can_pretend(), reason="this system does not let us pretend another machine (unshare)"
)


@pytest.fixture(scope="module")
def cluster():
    with ray_cluster() as found:
        yield found


@pytest.fixture
def started():
    """Start a driver of a toy sweep, which does not outlive the test."""
    drivers = []

    def start(root, **options):
        drivers.append(start_driver(root, **options))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.kill()
        driver.wait()


def run_on(cluster, root, plan):
    return run_noting(root, plan, partial(RayExecutor, address=cluster.address, threads=1))


def kill_at_work(machine: psutil.Process, root) -> None:
    """Kill a far machine while it has a job."""
    log = root / "log" / f"worker-{FAR}.txt"
    wait_for(lambda: log.exists() and list((root / "work").glob("[!.]*")))
    machine.kill()
    machine.wait()


@needs_ray
@needs_machines
def test_a_node_that_dies_loses_its_job_alone(cluster, tmp_path, whole):
    plan = toy_plan(tmp_path, seconds=0.3)
    with cluster.far_node() as machine:
        killer = threading.Thread(target=kill_at_work, args=(machine, tmp_path))
        killer.start()
        outcome, deaths = run_on(cluster, tmp_path, plan)
        killer.join()
    assert [death.outside for death in deaths] in ([True], [])  # it may be between two jobs
    assert (outcome.failed, outcome.waiting) == ((), 0)
    assert same_as(whole, tmp_path, plan)
    assert sum(runs(tmp_path, "begin").values()) <= len(plan) + len(deaths)


@needs_ray
@needs_machines
def test_real_models_give_the_bits_of_the_local_engine(
    cluster, tmp_path, simcore, tiny_bert, reviews
):
    file = tmp_path / "study.toml"
    file.write_text(
        f'models = [{{name = "{tiny_bert.path}", label = "tiny"}}]\n'
        f'tasks = [{{name = "{reviews}", text_column = "body", label_column = "verdict"}}]\n'
        '[finetune]\nseeds = "1..2"\nmax_steps = 4\n'
        '[[grids]]\nmeasure = ["cka", "svcca"]\n'
    )
    common = ("--threads", 1, "--no-figures")
    assert simcore("sweep", file, "--out", tmp_path / "local", *common)[0] == 0
    there = tmp_path / "cluster"
    with cluster.far_node() as machine:
        killer = threading.Thread(target=kill_at_work, args=(machine, there))
        killer.start()
        sweep = Sweep.from_file(file)
        how = {"engine": "ray", "address": cluster.address, "threads": 1, "figures": False}
        report = sweep.run(there, **how)
        killer.join()
    assert (report.failed, report.waiting) == ((), 0)
    assert sweep.results(there).equals(sweep.results(tmp_path / "local"))
    made = sorted(path.relative_to(there) for path in there.rglob("*.safetensors"))
    assert len(made) == 2 + 3
    for path in made:
        assert hash_file(there / path) == hash_file(tmp_path / "local" / path)


@needs_ray
@needs_machines
def test_a_node_that_does_not_see_the_folder_is_named(cluster, tmp_path):
    plan = toy_plan(tmp_path)
    words = rf"out='{tmp_path}': .* node {FAR} does not see a file of its driver"
    with cluster.far_node(hidden=tmp_path), pytest.raises(UserError, match=words):
        run_on(cluster, tmp_path, plan)
    assert list(tmp_path.glob(".id-*")) == []


@needs_ray
def test_a_process_that_dies_is_tried_again(cluster, tmp_path, whole):
    plan = toy_plan(tmp_path, fate={"rows1": ["SIGKILL"]})
    outcome, deaths = run_on(cluster, tmp_path, plan)
    assert not outcome.failed
    (death,) = deaths
    assert (death.outside, "died unexpectedly" in str(death)) == (False, True)
    assert runs(tmp_path, "begin")["rows1"] == 2
    assert same_as(whole, tmp_path, plan)


@needs_ray
def test_the_jobs_of_a_killed_driver_end(cluster, tmp_path, whole, started):
    driver = started(tmp_path, address=cluster.address, wait=str(tmp_path / "go"))
    wait_for((tmp_path / "runs.txt").exists)
    worker = psutil.Process(int((tmp_path / "runs.txt").read_text().split()[2]))
    driver.kill()
    driver.wait()
    assert gone([worker]) == []
    plan = toy_plan(tmp_path)
    assert not run_toy(tmp_path, plan).failed
    assert same_as(whole, tmp_path, plan)


@needs_ray
def test_a_head_that_dies_ends_the_sweep_with_one_line(tmp_path, whole):
    with ray_cluster() as cluster:
        driver = start_driver(
            tmp_path, address=cluster.address, wait=str(tmp_path / "go"), stderr=subprocess.PIPE
        )
        wait_for((tmp_path / "runs.txt").exists)
        cluster.kill_head()
        _, errors = driver.communicate()
    (line,) = [line for line in errors.decode().splitlines() if line.startswith("error: ")]
    assert driver.returncode == 2
    assert f"the head of the cluster at {cluster.address}, found that it is gone" in line
    assert "start a cluster, and repeat the command" in line
    plan = toy_plan(tmp_path)
    assert not run_toy(tmp_path, plan).failed
    assert same_as(whole, tmp_path, plan)


@needs_ray
def test_a_cluster_that_is_not_there_is_one_line(tmp_path, simcore, study):
    wrong = ("--engine", "ray", "--address", "127.0.0.1:1")
    refused = simcore("sweep", study, "--out", tmp_path / "out", *wrong)
    check_refused(refused, "--address 127.0.0.1:1: wanted HOST:PORT of the head", "refused")


@pytest.fixture
def study(tmp_path, tiny_bert, reviews):
    """A sweep file."""
    file = tmp_path / "study.toml"
    file.write_text(
        f'models = ["{tiny_bert.path}"]\n'
        f'tasks = [{{name = "{reviews}", text_column = "body", label_column = "verdict"}}]\n'
    )
    return file


def test_without_ray_the_command_says_how_to_install_it(tmp_path, simcore, study, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    refused = simcore("sweep", study, "--out", tmp_path / "out", "--engine", "ray")
    check_refused(refused, "wanted the package ray", "'ray>=2.60'`")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--engine", "pbs"), "--engine pbs: wanted one of local, ray, slurm"),
        (("--engine", "ray"), "--engine ray: wanted --address beside it"),
        (("--address", "auto"), "--address: wanted --engine ray beside it, found local"),
        (
            ("--resource", "grid:cores=2"),
            "--resource: wanted --engine ray or --engine slurm beside",
        ),
    ],
)
def test_options_of_another_engine_are_refused(options, words, tmp_path, simcore, study):
    check_refused(simcore("sweep", study, "--out", tmp_path / "out", *options), words)
