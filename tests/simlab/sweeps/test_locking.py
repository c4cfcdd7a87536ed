"""Locks of mounts: options by which they hold on one machine alone, and a probe for all others."""

import fcntl
import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from simlab.sweeps import drivers, node_worker
from simlab.sweeps.drivers import driving
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.locking import Probe, is_kept_off, local_locks, mount_of
from simlab.sweeps.node_worker import Desk, check_node

LINES = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:50 / /nfs rw,relatime shared:1 - nfs4 server:/x rw,vers=4.2,local_lock=none
31 22 0:51 / /nfs/old rw - nfs server:/y rw,vers=3,nolock,local_lock=all
32 22 0:52 / /scratch rw,flock - lustre mgs:/fs rw,flock
33 22 0:53 / /with\\040space rw - lustre mgs:/fs rw,localflock
34 22 0:54 / /twice rw - nfs server:/y rw,local_lock=flock
35 22 0:55 / /twice rw - ext4 /dev/vdb rw
"""


@pytest.fixture
def listing(tmp_path):
    file = tmp_path / "mountinfo"
    file.write_text(LINES)
    return file


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/home/a", None),
        ("/nfs/study", None),
        ("/nfs/old/study", "/nfs/old is mounted with the option nolock (nfs)"),
        ("/scratch/study", None),
        ("/with space/study", "/with space is mounted with the option localflock (lustre)"),
        ("/twice/study", None),
        ("/nfs/older", None),
    ],
)
def test_options_of_mounts_tell_whose_locks_are_local(path, words, listing):
    assert local_locks(path, listing) == words


def test_the_mount_of_a_folder_of_this_machine_is_found(tmp_path):
    found = mount_of(tmp_path / "not made yet")
    assert tmp_path.is_relative_to(found.point)
    assert mount_of(tmp_path, tmp_path / "no list") is None


def test_a_held_lock_keeps_another_process_off(tmp_path):
    probe = Probe(tmp_path / "lock")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(is_kept_off, (tmp_path / "lock",))
        probe.close()
        assert not pool.apply(is_kept_off, (tmp_path / "lock",))


def test_who_asks_for_a_lock_keeps_no_other_off(tmp_path):
    """And needs no right to write to the file."""
    probe = Probe(tmp_path / "lock", "text")
    assert (tmp_path / "lock").read_text() == "text"
    probe.close()
    (tmp_path / "lock").chmod(0o444)
    with (tmp_path / "lock").open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        assert is_kept_off(tmp_path / "lock") is False
    assert is_kept_off(tmp_path / "none") is None


def test_a_probe_is_locked_before_it_has_its_name(tmp_path, monkeypatch):
    """Two Ray drivers start together: neither takes the file of the other for one of the dead."""
    seen, replace = [], os.replace

    def see(source, target):
        seen.append((is_kept_off(Path(source)), Path(source).read_text(), Path(target).exists()))
        replace(source, target)

    monkeypatch.setattr(os, "replace", see)
    desk = Desk(str(tmp_path), "0123456789ab", str(tmp_path))
    probe = desk.open()
    assert seen == [(True, desk.token, False)]
    assert [path.name for path in tmp_path.iterdir()] == [".shared-0123456789ab"]
    probe.close()


def test_files_of_drivers_and_nodes_have_the_rights_that_the_user_chose(tmp_path):
    before = os.umask(0o002)
    try:
        Probe(tmp_path / "lock").close()
        with node_worker._printing_to(tmp_path / "log"):
            pass
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("lock", "log")]
    assert modes == [0o664, 0o664]


def test_a_node_that_gets_the_lock_of_the_driver_is_named(tmp_path):
    desk = Desk(str(tmp_path), "0123456789ab", str(tmp_path))
    probe = desk.open()
    assert check_node(desk, "node") == ""
    probe.close()
    assert "it got a lock that the driver holds" in check_node(desk, "node")


def test_files_of_a_driver_that_was_killed_go(tmp_path):
    ended, alive = (Desk(str(tmp_path), name * 12, str(tmp_path)) for name in "ea")
    ended.open().close()
    ended.answer("node")
    probe = alive.open()
    alive.answer("node")
    Desk(str(tmp_path), "n" * 12, str(tmp_path)).open().close()
    found = sorted(path.name for path in tmp_path.glob(".shared-*"))
    assert found == [".shared-" + name for name in ("a" * 12, "a" * 12 + "node", "n" * 12)]
    probe.close()


def test_a_driver_says_that_locks_hold_on_one_machine(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(drivers, "local_locks", lambda _: "/x is mounted with the option nolock")
    folder = SweepFolder(tmp_path)
    folder.create()
    with driving(folder, "study"):
        pass
    assert "locks hold on this machine alone" in " ".join(capsys.readouterr().err.split())
