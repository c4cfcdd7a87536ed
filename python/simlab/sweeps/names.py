"""Names for people: links to the objects of a sweep, which stand under their keys.

``checkpoints/minilm-ft-1-rt`` is a link to ``objects/finetune/ab/abcd...``.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from simlab.store.console import note
from simlab.store.files import writing
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.plan import EXTRACT, FINETUNE, IMPORT, PRETRAIN, Job, Plan

SHELVES: Mapping[str, str] = {
    PRETRAIN: "models",
    FINETUNE: "checkpoints",
    EXTRACT: "representations",
    IMPORT: "representations",
}
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)  # as FAT and some shares answer
_KEY_LETTERS = 8  # which tell objects of one title apart


def link_objects(folder: SweepFolder, plan: Plan) -> None:
    """Name all objects of a plan that are there, and forget the names of all others.

    A file system without links leaves the objects without names, and a note says so.
    """
    links = {
        place: folder.place(job.kind, job.key)
        for place, job in names_of(folder.root, plan).items()
        if folder.place(job.kind, job.key).is_dir()
    }
    for shelf in set(SHELVES.values()):
        for place in (folder.root / shelf).glob("*"):
            if place.is_symlink() and place not in links:
                place.unlink(missing_ok=True)
    are_linked = [_link(place, os.path.relpath(links[place], place.parent)) for place in links]
    if not all(are_linked):
        note(f"{folder.root}: objects have no names for people, because links are refused there")


def names_of(root: Path, plan: Plan) -> dict[Path, Job]:
    """Return the jobs whose objects have names, by the places of their names."""
    jobs = [job for job in plan.jobs if job.kind in SHELVES]
    names = [root / SHELVES[job.kind] / _slug(job.title) for job in jobs]
    count = Counter(names)
    return {
        name if count[name] == 1 else name.with_name(f"{name.name}-{job.key[:_KEY_LETTERS]}"): job
        for name, job in zip(names, jobs, strict=True)
    }


def _slug(title: str) -> str:
    """Return a title as the name of a file that needs no quotes: ``minilm-ft-1-cls-heldout-rt``."""
    return re.sub(r"[^\w.]+", "-", title.lower()).strip("-.")


def _link(place: Path, target: str) -> bool:
    """Make a link, and return whether the file system takes links."""
    if place.is_symlink() and os.readlink(place) == target:
        return True
    # Another driver may link at the same moment: the last rename stays.
    new = place.with_name(f".{place.name}-{uuid.uuid4().hex}")
    with writing(place):
        place.parent.mkdir(exist_ok=True)
        try:
            new.symlink_to(target, target_is_directory=True)
        except OSError as error:
            if error.errno in _NO_LINKS:
                return False
            raise
        os.replace(new, place)
    return True
