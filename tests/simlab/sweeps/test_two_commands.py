"""One driver a folder: a second command is refused in one line, and no dead one is in the way."""

import signal
from pathlib import Path

import pytest

from simlab.errors import BusyError, UserError
from simlab.sweeps.engines import local_locks
from simlab.sweeps.outputs import LOCK
from support.lab.inline import Inline
from support.lab.owner import wait_for
from support.lab.rayclusters import can_pretend, namespaces
from support.lab.toysweep import run_toy, same_as, start_driver, toy_plan

NFS = "server:/x {place} nfs rw,relatime,vers=3{option},proto=tcp 0 0\n"


@pytest.mark.deep
def test_a_second_command_is_told_of_a_driver_elsewhere_and_takes_over_when_it_is_dead(
    tmp_path, whole
):
    if not can_pretend():
        pytest.skip("this system does not let us pretend another machine (unshare)")
    before = [*namespaces(), "sh", "-c", 'hostname faraway; exec "$@"', "sh"]
    driver = start_driver(tmp_path, before, wait=str(tmp_path / "go"))
    wait_for((tmp_path / "runs.txt").exists)
    with pytest.raises(BusyError, match=r"wanted one process at a time, found .*on faraway since"):
        run_toy(tmp_path, toy_plan(tmp_path))
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    (tmp_path / "go").touch()
    plan = toy_plan(tmp_path)
    assert run_toy(tmp_path, plan).failed == ()
    assert same_as(whole, tmp_path, plan)


def test_a_driver_whose_lock_was_removed_ends_before_it_gathers(tmp_path, whole):
    """Its node was dead for its user, who removed the lock; then it went on."""
    plan = toy_plan(tmp_path)

    class Removing(Inline):
        def submit(self, fn, order):
            (tmp_path / LOCK).unlink(missing_ok=True)
            return super().submit(fn, order)

    with pytest.raises(UserError, match=r"wanted the lock .* somebody removed it"):
        run_toy(tmp_path, plan, start=lambda _: Removing())
    assert list((tmp_path / "results").iterdir()) == []
    assert run_toy(tmp_path, plan, start=lambda _: Inline()).failed == ()
    assert same_as(whole, tmp_path, plan)


@pytest.mark.deep
def test_two_drivers_without_a_lock_do_no_harm(tmp_path, whole):
    """Where locks hold for each machine alone."""
    drivers = [start_driver(tmp_path, workers=2, locked=False) for _ in range(2)]
    assert {driver.wait() for driver in drivers} <= {0, 1, 2}
    plan = toy_plan(tmp_path)
    assert run_toy(tmp_path, plan, retry_failed=True).failed == ()
    assert same_as(whole, tmp_path, plan)


@pytest.mark.parametrize("option", [",nolock", ",local_lock=flock", ",local_lock=none"])
def test_mounts_whose_locks_hold_on_one_machine_are_known(option, tmp_path):
    listing = tmp_path / "mounts"
    listing.write_text(
        "/dev/sda1 / ext4 rw 0 0\n" + NFS.format(place="/nfs/a\\040b", option=option)
    )
    reason = local_locks(Path("/nfs/a b/sweep"), listing)
    wanted = f"/nfs/a b is mounted with the option {option[1:]} (nfs)"
    assert reason == (None if option.endswith("none") else wanted)
    assert local_locks(tmp_path, listing) is None
