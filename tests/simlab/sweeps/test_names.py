"""Names for people: links to the objects of a sweep."""

import errno
import os
from pathlib import Path

import pytest

from simlab.errors import WriteError
from simlab.sweeps.outputs import Names, SweepFolder
from simlab.sweeps.plan import EXTRACT, FINETUNE, GRID, Plan
from support.lab.inline import Inline
from support.lab.toysweep import run_toy, toy_plan


@pytest.fixture
def folder(tmp_path):
    return SweepFolder(tmp_path)


def made(folder, plan, kind, title, **params):
    """Add a job to a plan, and make its object."""
    job = plan.jobs[plan.add(kind, {"title": title, **params}, title=title)]
    folder.place(kind, job.key).mkdir(parents=True)
    return job


def link_objects(folder, plan):
    Names(folder, plan).begin(folder.stored(plan))


def linked(folder):
    return {str(p.relative_to(folder.root)): p for p in folder.root.glob("*/*") if p.is_symlink()}


def test_objects_have_names_without_brackets_and_blanks(folder):
    plan = Plan()
    tuned = made(folder, plan, FINETUNE, "org/mini-FT[1] rt")
    made(folder, plan, EXTRACT, "minilm-FT[1] modules-mean heldout rt")
    plan.add(GRID, {}, title="FT-FT cka cls rt")  # rows are no object
    link_objects(folder, plan)
    names = {"checkpoints/org-mini-ft-1-rt", "representations/minilm-ft-1-modules-mean-heldout-rt"}
    assert set(linked(folder)) == names
    place = linked(folder)["checkpoints/org-mini-ft-1-rt"]
    assert place.resolve() == folder.place(FINETUNE, tuned.key).resolve()
    assert not os.path.isabs(os.readlink(place))  # the folder may be moved


def test_jobs_of_one_title_have_their_keys_in_their_names(folder):
    plan = Plan()
    first, second = (made(folder, plan, FINETUNE, "a rt", epochs=n) for n in (1, 2))
    names = {key: path.name for key, path in Names(folder, plan).places.items()}
    assert names == {job.key: f"a-rt-{job.key[:8]}" for job in (first, second)}


def test_names_follow_the_plan_and_the_objects(folder):
    plan = Plan()
    gone = made(folder, plan, FINETUNE, "gone rt")
    made(folder, plan, FINETUNE, "stays rt", epochs=1)
    link_objects(folder, plan)
    folder.place(FINETUNE, gone.key).rmdir()
    other = Plan()
    again = made(folder, other, FINETUNE, "stays rt", epochs=2)
    link_objects(folder, other)
    assert set(linked(folder)) == {"checkpoints/stays-rt"}
    assert linked(folder)["checkpoints/stays-rt"].resolve().name == again.key


def test_an_object_has_its_name_when_it_is_made_and_loses_it_when_it_goes(tmp_path):
    plan = toy_plan(tmp_path)
    seen = []

    class Looking(Inline):
        def submit(self, fn, order):
            seen.append(set(linked(SweepFolder(tmp_path))))
            return super().submit(fn, order)

    run_toy(tmp_path, plan, keep="representations", start=lambda _: Looking())
    assert "checkpoints/ft0" in seen[1]
    assert "checkpoints/ft0" not in seen[3]
    assert "representations/rows0" in seen[-1]


def test_a_copy_of_an_object_keeps_its_name(folder):
    """A folder was copied with all that its links lead to."""
    plan = Plan()
    made(folder, plan, FINETUNE, "mini-FT[1] rt")
    (folder.root / "checkpoints" / "mini-ft-1-rt").mkdir(parents=True)
    link_objects(folder, plan)
    assert linked(folder) == {}


def test_a_file_system_without_links_leaves_objects_without_names(folder, monkeypatch, capsys):
    """The rows and figures of a sweep do not depend on names for people."""

    def refuse(*_, **__):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    plan = Plan()
    made(folder, plan, FINETUNE, "mini-FT[1] rt")
    monkeypatch.setattr(Path, "symlink_to", refuse)
    link_objects(folder, plan)
    assert linked(folder) == {}
    told = " ".join(capsys.readouterr().err.split())
    assert "objects have no names for people: links are refused there" in told


def test_a_full_disk_is_named_and_not_taken_for_one_without_links(folder, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    plan = Plan()
    made(folder, plan, FINETUNE, "mini-FT[1] rt")
    monkeypatch.setattr(Path, "symlink_to", refuse)
    with pytest.raises(WriteError, match=r"checkpoints.mini-ft-1-rt: wanted to write there"):
        link_objects(folder, plan)
