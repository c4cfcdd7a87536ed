"""Names for people: links to the objects of a sweep."""

import errno
import os
from pathlib import Path

import pytest

from simlab.errors import WriteError
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.names import link_objects, names_of
from simlab.sweeps.plan import EXTRACT, FINETUNE, GRID, Plan


@pytest.fixture
def folder(tmp_path):
    return SweepFolder(tmp_path)


def made(folder, plan, kind, title, **params):
    """Add a job to a plan, and make its object."""
    job = plan.jobs[plan.add(kind, {"title": title, **params}, title=title)]
    folder.place(kind, job.key).mkdir(parents=True)
    return job


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
    names = {path.name: job for path, job in names_of(folder.root, plan).items()}
    assert names == {f"a-rt-{first.key[:8]}": first, f"a-rt-{second.key[:8]}": second}


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


def test_files_that_are_no_links_stay(folder):
    mine = folder.root / "checkpoints" / "mine"
    mine.mkdir(parents=True)
    link_objects(folder, Plan())
    assert mine.is_dir()


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
    assert "objects have no names for people, because links are refused there" in told


def test_a_full_disk_is_named_and_not_taken_for_one_without_links(folder, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    plan = Plan()
    made(folder, plan, FINETUNE, "mini-FT[1] rt")
    monkeypatch.setattr(Path, "symlink_to", refuse)
    with pytest.raises(WriteError, match=r"checkpoints.mini-ft-1-rt: wanted to write there"):
        link_objects(folder, plan)
