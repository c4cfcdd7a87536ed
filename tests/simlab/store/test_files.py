"""A system that refuses to write: one line, whichever library was writing, and nothing left."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from simlab.errors import UserError, WriteError
from simlab.results.results import ensure_results
from simlab.store.files import atomic_file, write_bytes, writing
from simlab.store.jobs import SCRATCH, run_job

SIZE = 100_000


def write_tensors(path):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(SIZE)}, path)


def write_torch(path):
    import torch

    torch.save({"a": torch.zeros(SIZE)}, path)


def write_torch_almost(path):
    """Write a file whose last bytes, which the C++ stream keeps back until close, do not fit."""
    import torch

    torch.save({"a": torch.zeros(4750)}, path)


def write_tokenizer(path):
    from tokenizers import Tokenizer, models

    vocabulary = {f"word-{number}": number for number in range(SIZE // 10)}
    Tokenizer(models.WordLevel(vocabulary, "word-0")).save(str(path))


def write_csv(path):
    import pandas as pd

    pd.DataFrame({"a": np.zeros(SIZE)}).to_csv(path)


def write_parquet(path):
    import pandas as pd

    pd.DataFrame({"a": np.random.default_rng(0).uniform(size=SIZE)}).to_parquet(path)


def write_text(path):
    path.write_text("a" * SIZE)


WRITERS = (write_tensors, write_torch, write_torch_almost, write_tokenizer, write_csv)
WRITERS += (write_parquet, write_text)
REFUSED = r": wanted to write there, found: .+ \([\d,]+ bytes free\)$"


@pytest.mark.parametrize("write", WRITERS)
def test_a_library_that_is_refused_ends_in_one_line_and_leaves_nothing(
    tmp_path, small_files, write
):
    def make(partial):
        write(partial / "file")

    with pytest.raises(WriteError, match=f"^{tmp_path}/step{REFUSED}"):
        run_job(tmp_path / "step", {}, make)
    with (
        pytest.raises(WriteError, match=f"^{tmp_path}/f{REFUSED}"),
        atomic_file(tmp_path / "f") as f,
    ):
        write(f)
    assert not list(tmp_path.iterdir())


def test_a_resumable_step_keeps_what_it_has_even_without_room_for_its_record(tmp_path, monkeypatch):
    def make(partial):
        (partial / "half").write_text("done")
        monkeypatch.setattr("simlab.store.jobs.write_json", refuse)
        raise OSError(errno.ENOSPC, "No space left on device")

    def refuse(path, value):
        raise WriteError(f"{path}: no room")

    with pytest.raises(WriteError, match="step: wanted to write there, found: No space left"):
        run_job(tmp_path / "step", {"a": 1}, make, resumable=True)
    monkeypatch.undo()
    partial = tmp_path / "step.partial"
    assert json.loads((partial / "job.json").read_text())["inputs"]["a"] == 1
    assert (partial / "half").read_text() == "done"


def test_other_errors_pass_as_they_are(tmp_path):
    for error in (FileNotFoundError(errno.ENOENT, "none"), RuntimeError("shape"), ValueError("x")):
        with pytest.raises(type(error)), writing(tmp_path):
            raise error


def fail_in_step(folder, number, *names):
    """Make ``folder/out`` by work that ends in an error about a file in `folder`."""

    def make(partial):
        (partial / "half").touch()
        raise OSError(number, os.strerror(number), *(str(folder / name) for name in names))

    run_job(folder / "out", {}, make)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EEXIST, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("names", [("model/config.json",), ()])
def test_a_file_that_cannot_be_read_is_not_one_that_cannot_be_written(tmp_path, names, number):
    """A step may fail to read its inputs, too; only writes are refused with a line."""
    with pytest.raises(OSError, match=os.strerror(number)):
        fail_in_step(tmp_path, number, *names)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("number", "names"),
    [
        (errno.EACCES, ("out.partial/a/b",)),
        (errno.ENOSPC, ("cache/file",)),
        (errno.EDQUOT, ()),
        (errno.EROFS, ()),
    ],
)
def test_a_file_of_the_output_and_a_lack_of_room_are_errors_of_writing(tmp_path, names, number):
    match = rf"^{tmp_path}/out: wanted to write there, found: {os.strerror(number)} \("
    with pytest.raises(WriteError, match=match):
        fail_in_step(tmp_path, number, *names)


def test_the_message_says_how_much_was_wanted_and_how_much_is_free(tmp_path, small_files):
    match = rf"^{tmp_path}/f: wanted to write 30,000 bytes there, found: File too large \("
    with pytest.raises(WriteError, match=match + r"[\d,]+ bytes free\)"):
        write_bytes(tmp_path / "f", b"a" * 30_000)
    assert not list(tmp_path.iterdir())


def test_a_file_above_the_output_is_named(tmp_path):
    (tmp_path / "file").touch()
    for name in ("file/x", "file/x/y"):
        match = rf"^{tmp_path}/file.*: wanted to write there, found: "
        with pytest.raises(WriteError, match=match):
            run_job(tmp_path / name, {}, lambda partial: None)
        with pytest.raises(WriteError, match=match):
            ensure_results(tmp_path / f"{name}.parquet", {}, lambda: [])


def make_step(out, value, **options):
    """Make folder `out` from inputs `value`."""

    def make(partial):
        (partial / "value").write_text(value)

    return run_job(out, {"value": value}, make, replace=True, **options)


@pytest.mark.parametrize("resumable", [False, True])
def test_a_link_stays_one_when_what_it_leads_to_is_replaced(tmp_path, resumable):
    link, real = tmp_path / "link", tmp_path / "elsewhere" / "real"
    link.symlink_to("elsewhere/real")  # the target does not exist at first
    for value in ("a", "b", "b"):
        assert make_step(link, value, resumable=resumable).path == link
        assert link.is_symlink()
        assert (real / "value").read_text() == value
    assert make_step(real, "b").skipped
    assert [path.name for path in real.parent.iterdir()] == ["real"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "link"]


def test_a_link_to_a_results_file_stays_one(tmp_path):
    link, real = tmp_path / "link.parquet", tmp_path / "elsewhere" / "real.parquet"
    link.symlink_to(real)
    for value in ("a", "b"):
        assert ensure_results(link, {"value": value}, lambda: [], replace=True).path == link
        assert link.is_symlink()
    assert ensure_results(real, {"value": "b"}, lambda: []).skipped
    assert [path.name for path in real.parent.iterdir()] == ["real.parquet"]


def test_links_in_a_circle_and_the_root_are_refused(tmp_path):
    (tmp_path / "x").symlink_to("y")
    (tmp_path / "y").symlink_to("x")
    with pytest.raises(UserError, match=rf"out='{tmp_path}/x': wanted .*, found links in a circle"):
        run_job(tmp_path / "x", {}, fail)
    for root in ("/", "//"):
        with pytest.raises(UserError, match=r"out='//?': wanted .*, found the root"):
            run_job(Path(root), {}, fail, replace=True)


def fail(*_):
    """Work that must not begin."""
    raise AssertionError


@pytest.mark.parametrize("name", [".", "..", "sub/..", "link"])
def test_the_working_directory_is_not_replaced(tmp_path, monkeypatch, name):
    place = tmp_path / "a" / "b"
    for folder in (place.parent, place):
        make_step(folder, "before")
    (place / "sub").mkdir()
    (place / "link").symlink_to(place)
    monkeypatch.chdir(place)
    assert make_step(Path(name), "before").skipped
    with pytest.raises(
        UserError, match=r"wanted a new folder or a folder made from the same inputs"
    ):
        run_job(Path(name), {"value": "after"}, fail)
    wanted = r"wanted a folder to replace, found the working directory or one above it; choose"
    with pytest.raises(UserError, match=rf"^out='{tmp_path}/.*': {wanted}"):
        run_job(Path(name), {"value": "after"}, fail, replace=True)
    assert (place / "value").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_file_is_not_replaced_by_a_folder_nor_a_folder_by_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dir.parquet").mkdir()
    for replace in (False, True):
        with pytest.raises(UserError, match=rf"out='{tmp_path}/file': wanted a folder, found a fi"):
            run_job(tmp_path / "file", {}, fail, replace=replace)
        with pytest.raises(UserError, match=r"dir.parquet': wanted a results file, found a folder"):
            ensure_results(tmp_path / "dir.parquet", {}, fail, replace=replace)
    with pytest.raises(WriteError, match=r"dir.parquet: wanted to write there, found: Is a dir"):
        write_bytes(tmp_path / "dir.parquet", b"a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dir.parquet", "file"]


@pytest.mark.parametrize("content", ["{}", "[1]", '{"key": "of another program"}'])
def test_a_record_of_another_program_is_other_content(tmp_path, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "job.json").write_text(content)
    with pytest.raises(UserError, match="found a folder with other content; choose another out"):
        run_job(tmp_path / "out", {}, lambda partial: None)


def test_a_folder_that_older_code_made_is_made_anew(tmp_path, monkeypatch):
    def job(**how):
        return run_job(tmp_path / "out", {"x": 1}, lambda folder: None, **how)

    with monkeypatch.context() as older:
        older.setattr("simlab.store.jobs.MADE", 1)
        job()
    with pytest.raises(UserError, match="a folder made with a different version"):
        job()
    assert not job(replace=True).skipped
    assert job().skipped


def test_work_that_was_done_before_a_kill_is_only_renamed(tmp_path, monkeypatch):
    made = []

    def make(partial):
        (partial / SCRATCH).mkdir()
        made.append((partial / "value").write_text("x"))

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("simlab.store.jobs.replace_folder", killed)
    with pytest.raises(KeyboardInterrupt):
        run_job(tmp_path / "out", {}, make, resumable=True)
    monkeypatch.undo()
    outcome = run_job(tmp_path / "out", {}, make, resumable=True)
    assert not outcome.skipped
    assert len(made) == 1
    assert sorted(path.name for path in outcome.path.iterdir()) == ["job.json", "value"]
    assert run_job(tmp_path / "out", {}, make, resumable=True).skipped
