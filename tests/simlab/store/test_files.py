"""A system that refuses to write: one line, whichever library was writing, and nothing left."""

import errno
import json

import numpy as np
import pytest

from simlab.errors import UserError, WriteError
from simlab.store.files import atomic_file, writing
from simlab.store.jobs import run_job
from simlab.store.results import ResultRow, ensure_results

SIZE = 100_000


def write_tensors(path):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(SIZE)}, path)


def write_torch(path):
    import torch

    torch.save({"a": torch.zeros(SIZE)}, path)


def write_parquet(path):
    import pandas as pd

    pd.DataFrame({"a": np.random.default_rng(0).uniform(size=SIZE)}).to_parquet(path)


def write_text(path):
    path.write_text("a" * SIZE)


@pytest.mark.parametrize("write", [write_tensors, write_torch, write_parquet, write_text])
def test_every_library_that_is_refused_ends_in_one_line(tmp_path, small_files, write):
    with (
        pytest.raises(WriteError, match=rf"^{tmp_path}.*: wanted to write there, found: .+"),
        writing(tmp_path / "out"),
    ):
        write(tmp_path / "file")


@pytest.mark.parametrize("write", [write_tensors, write_torch, write_parquet, write_text])
def test_a_refused_step_leaves_nothing(tmp_path, small_files, write):
    def make(partial):
        write(partial / "file")

    with pytest.raises(UserError, match="wanted to write there"):
        run_job(tmp_path / "step", {}, make)
    with pytest.raises(UserError, match="wanted to write there"), atomic_file(tmp_path / "f") as f:
        write(f)
    assert not list(tmp_path.iterdir())


def test_a_results_file_that_does_not_fit_leaves_nothing(tmp_path, small_files):
    numbers = np.random.default_rng(0).uniform(size=20_000)
    rows = [
        ResultRow(comparison="c", measure="m", model_x="x", value=value, n=1, task="t")
        for value in numbers
    ]
    with pytest.raises(UserError, match=r"out.parquet: wanted to write there, found: File too"):
        ensure_results(tmp_path / "out.parquet", {}, lambda: rows)
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
    assert json.loads((partial / "job.json").read_text())["inputs"] == {"a": 1}
    assert (partial / "half").read_text() == "done"


def test_other_errors_pass_as_they_are(tmp_path):
    for error in (FileNotFoundError(errno.ENOENT, "none"), RuntimeError("shape"), ValueError("x")):
        with pytest.raises(type(error)), writing(tmp_path):
            raise error


def test_a_missing_permission_names_the_file(tmp_path):
    denied = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "named"))
    with pytest.raises(WriteError, match=r"named: .* Permission denied"), writing(tmp_path):
        raise denied
