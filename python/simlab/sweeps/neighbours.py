"""Drivers of other machines on the same folder: whether their locks keep this machine off.

Some file systems grant a lock to each machine on its own, and no option of the mount says so
(BeeGFS, sshfs, CIFS with ``nobrl``). Two machines would then take over each other's claims. So each
driver keeps a file locked beside its claim, and asks for the locks of all drivers of other
machines. A driver whose lock was free, and that touched its claim afterwards, is alive, and locks
do not hold between the two machines. A driver whose lock was free and that stays silent has ended.

The file is locked before the claim is made, and until the claim is given back.
"""

from __future__ import annotations

import os
from pathlib import Path

from simlab.errors import UserError, argument
from simlab.sweeps import processes
from simlab.sweeps.claims import BEAT_SECONDS, Sight, Signature, look
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.locking import is_kept_off

SIGN_SECONDS = 3 * BEAT_SECONDS  # in which a driver that is alive touches its claim
_END = ".lock"


class Neighbours:
    """Drivers of other machines and their locks, as this process has seen them."""

    def __init__(self, folder: SweepFolder) -> None:
        self.folder = folder
        self._free: dict[Path, Signature] = {}  # claims of drivers whose locks this process got

    def look(self) -> list[Sight]:
        """Return the drivers whose locks are free; each has ended or gives a sign soon.

        Raises
        ------
        UserError
            A driver gave a sign after its lock was free.
        """
        sights = []
        for name in sorted(os.listdir(self.folder.drivers)):
            path = self.folder.drivers / name
            if not name.startswith(".") and self._is_free(path):
                sight = look(path)
                if sight is None:
                    continue
                if self._free.setdefault(path, sight.signature) != sight.signature:
                    raise UserError(
                        f"{argument('out', self.folder.root)}: wanted a folder whose locks hold on "
                        f"all machines, found that {sight} is at work there, and that its locks do "
                        "not keep this machine off (as with BeeGFS, sshfs, or CIFS with nobrl); "
                        f"use one machine at a time, or choose another {argument('out')}"
                    )
                sights.append(sight)
        return sights

    def _is_free(self, path: Path) -> bool:
        """Return whether this process got the lock of a driver of another machine."""
        if path in self._free:
            return True
        sight = look(path)
        if sight is None or sight.owner.get("place") in (None, processes.place()):
            return False
        return is_kept_off(probe_of(path)) is False


def probe_of(claim: Path) -> Path:
    """Return the file that a driver keeps locked beside its claim."""
    return claim.with_name(f".{claim.name}{_END}")


def remove_old_probes(drivers: Path) -> None:
    """Remove the files of drivers that have ended, and have no claim any more."""
    for path in drivers.glob(f".*{_END}"):
        claim = path.with_name(path.name[1:].removesuffix(_END))
        if not claim.exists() and is_kept_off(path) is False:
            path.unlink(missing_ok=True)
