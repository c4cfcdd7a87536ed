"""A system that refuses to write: one line, whichever library was writing, and nothing left."""

import errno
import json

import numpy as np
import pytest

from simlab.errors import UserError, WriteError
from simlab.files import atomic_file, write_bytes, writing
from simlab.jobs import run_job
from simlab.results import ResultRow, ensure_results

SIZE = 100_000


def write_tensors(path):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(SIZE)}, path)


def write_torch(path):
    import torch

    torch.save({"a": torch.zeros(SIZE)}, path)


def write_torch_almost(path):
    """The last bytes do not fit, those that the C++ stream keeps back until the file is closed."""
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


@pytest.mark.parametrize("write", WRITERS)
def test_every_library_that_is_refused_ends_in_one_line(tmp_path, small_files, write):
    with (
        pytest.raises(WriteError, match=rf"^{tmp_path}.*: wanted to write there, found: .+"),
        writing(tmp_path / "out"),
    ):
        write(tmp_path / "file")


@pytest.mark.parametrize("write", WRITERS)
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
        monkeypatch.setattr("simlab.jobs.write_json", refuse)
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


def test_the_message_says_how_much_was_wanted_and_how_much_is_free(tmp_path, small_files):
    match = rf"^{tmp_path}/f: wanted to write 30,000 bytes there, found: File too large \("
    with pytest.raises(
        WriteError, match=match + r"[\d,]+ bytes free, at most 20,000 in one file\)"
    ):
        write_bytes(tmp_path / "f", b"a" * 30_000)
    assert not list(tmp_path.iterdir())


def test_a_file_above_the_output_is_named(tmp_path):
    (tmp_path / "file").touch()
    for name in ("file/x", "file/x/y"):
        with pytest.raises(
            WriteError, match=rf"^{tmp_path}/file.*: wanted to write there, found: "
        ):
            run_job(tmp_path / name, {}, lambda partial: None)
        with pytest.raises(
            WriteError, match=rf"^{tmp_path}/file.*: wanted to write there, found: "
        ):
            ensure_results(tmp_path / f"{name}.parquet", {}, lambda: [])


def test_a_name_that_is_too_long_is_named(tmp_path):
    with pytest.raises(WriteError, match=r"n{250}: wanted .* there, found: File name too long$"):
        run_job(tmp_path / ("n" * 250), {}, lambda partial: None)


def test_a_missing_permission_names_the_file(tmp_path):
    denied = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "named"))
    with pytest.raises(WriteError, match=r"named: .* Permission denied"), writing(tmp_path):
        raise denied
