"""Processes that stand still at work (SIGSTOP), and drivers of another machine that take over."""

import contextlib

import psutil
import pytest

from simlab.sweeps import claims
from simlab.sweeps.folder import SweepFolder
from support.lab.owner import wait_for
from support.lab.rayclusters import FAR, can_pretend, namespaces
from support.lab.toysweep import contents, rows, runs, same_as, start_driver, toy_plan

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not can_pretend(), reason="this system does not let us pretend another machine (unshare)"
    ),
]
STALE = 10.0
# `exec` keeps the number of the process that `unshare` kills with its parent.
ELSEWHERE = ["sh", "-c", f'hostname {FAR} && exec "$@"', "sh"]


@pytest.fixture
def start():
    """Start drivers, which do not outlive the test."""
    drivers = []

    def begin(root, **options):
        drivers.append(start_driver(root, seconds=1.0, seeds=1, stale=STALE, **options))
        return drivers[-1]

    yield begin
    for driver in drivers:
        for process in family(driver.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        driver.wait()


def family(pid):
    """Return a process and its children."""
    with contextlib.suppress(psutil.NoSuchProcess):
        found = psutil.Process(pid)
        return [found, *found.children(recursive=True)]
    return []


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Rows and objects of a driver that nothing disturbed."""
    root = tmp_path_factory.mktemp("alone")
    assert start_driver(root, seeds=1).wait() == 0
    return rows(root, toy_plan(root, seeds=1)), contents(root)


def owner_of(path):
    """Return the name of the machine that holds a claim."""
    sight = claims.look(path)
    return sight.owner["place"][0] if sight is not None and sight.owner else None


@pytest.mark.parametrize("name", ["ft0", "rows0", "grid0"])
@pytest.mark.parametrize("continues", ["at work", "at the end"])
def test_a_process_that_stood_still_leaves_its_job_to_another(
    name, continues, tmp_path, start, alone
):
    plan = toy_plan(tmp_path, seeds=1)
    (job,) = [job for job in plan.jobs if job.params["name"] == name]
    folder = SweepFolder(tmp_path)
    first = start(tmp_path)
    began = tmp_path / "runs.txt"
    wait_for(lambda: began.exists() and f"begin {name} " in began.read_text())
    stopped = family(first.pid)
    for process in stopped:
        process.suspend()
    second = start(tmp_path, before=[*namespaces(), *ELSEWHERE])
    if continues == "at work":
        wait_for(lambda: owner_of(folder.claims / job.key) == FAR)
    else:
        assert second.wait() == 0
    for process in stopped:
        # The driver, which goes on first, may end its workers.
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
    assert (first.wait(), second.wait()) in [(0, 0), (2, 0)]  # 2: it was taken for gone
    assert [list((tmp_path / name).iterdir()) for name in ("claims", "failures", "work")] == [
        []
    ] * 3
    keys = [line["key"] for line in folder.finished()]
    assert sorted(keys) == sorted(job.key for job in plan.jobs)
    assert runs(tmp_path, "begin")[name] == 2
    assert same_as(alone, tmp_path, plan)
