"""Names for people: links to the objects of a sweep, which stand under their keys.

``checkpoints/minilm-ft-1-rt`` is a link to ``objects/finetune/ab/abcd...``.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping

from simlab.store.console import note
from simlab.store.files import writing
from simlab.sweeps.outputs import SweepFolder
from simlab.sweeps.plan import EXTRACT, FINETUNE, IMPORT, PRETRAIN, Plan

SHELVES: Mapping[str, str] = {
    PRETRAIN: "models",
    FINETUNE: "checkpoints",
    EXTRACT: "representations",
    IMPORT: "representations",
}
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)  # as FAT and some shares answer
_KEY_LETTERS = 8  # which tell objects of one title apart


class Names:
    """The links of a plan, by the keys of the jobs."""

    def __init__(self, folder: SweepFolder, plan: Plan) -> None:
        self.folder, self._are_refused = folder, False
        jobs = [job for job in plan.jobs if job.kind in SHELVES]
        plain = [f"{SHELVES[job.kind]}/{_slug(job.title)}" for job in jobs]
        count = Counter(plain)
        self.places = {
            job.key: folder.root
            / (name if count[name] == 1 else f"{name}-{job.key[:_KEY_LETTERS]}")
            for name, job in zip(plain, jobs, strict=True)
        }
        self._kinds = {job.key: job.kind for job in jobs}

    def begin(self, present: Iterable[str]) -> None:
        """Name the objects that are there, and forget the names of all others."""
        links = {self.places[key] for key in present if key in self.places}
        for shelf in set(SHELVES.values()):
            for place in (self.folder.root / shelf).glob("*"):
                if place.is_symlink() and place not in links:
                    place.unlink(missing_ok=True)
        for key in present:
            self.add(key)

    def add(self, key: str) -> None:
        """Name an object; a file system without links leaves it without, and a note says so."""
        place = self.places.get(key)
        if place is None or self._are_refused or (place.exists() and not place.is_symlink()):
            return  # the name may be taken by a copy of the object
        target = os.path.relpath(self.folder.place(self._kinds[key], key), place.parent)
        new = place.with_name(f".{place.name}-{uuid.uuid4().hex}")
        with writing(place):
            place.parent.mkdir(exist_ok=True)
            try:
                new.symlink_to(target, target_is_directory=True)
                os.replace(new, place)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self._are_refused = True
                note(f"{place.parent}: objects have no names for people: links are refused there")

    def remove(self, key: str) -> None:
        """Forget the name of an object that went."""
        if key in self.places and self.places[key].is_symlink():
            self.places[key].unlink(missing_ok=True)


def _slug(title: str) -> str:
    """Return a title as the name of a file that needs no quotes: ``minilm-ft-1-cls-heldout-rt``."""
    return re.sub(r"[^\w.]+", "-", title.lower()).strip("-.")
