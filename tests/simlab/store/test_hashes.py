"""Hashes: a file is read once, however often it is asked for, and again when it is another."""

import os
import time
from pathlib import Path

from simlab.models.sources import resolve
from simlab.representations.extract import extract
from simlab.representations.folder import load_representations
from simlab.store.files import FileHashes
from support.lab.tinymodels import save_tiny_model


def test_weights_and_stored_layers_are_read_once(tmp_path, review_task, monkeypatch):
    source = resolve(save_tiny_model(tmp_path / "bert"))
    folder = extract(source, review_task, tmp_path / "reps", max_length=24).path
    now, opened, read = time.time_ns(), [], Path.open
    monkeypatch.setattr(time, "time_ns", lambda: now + 10**12)  # the files have been at rest
    monkeypatch.setattr(
        Path, "open", lambda self, *how, **more: (opened.append(self), read(self, *how, **more))[1]
    )
    prints = {source.fingerprint for _ in range(3)}
    for _ in range(3):
        load_representations(folder)
    names = [file.name for file in opened]
    assert names.count("model.safetensors") == 1
    assert names.count("cls.safetensors") == 1 + 3  # each load maps it
    weights = source.path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert source.fingerprint not in prints


def test_a_file_of_a_server_whose_clock_is_behind_is_read_again(tmp_path, monkeypatch):
    """The file was written a moment ago, and its time of change is minutes old."""
    file, hashes = tmp_path / "file", FileHashes()
    file.write_text("one")
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 299 * 10**9)
    hashes.hash(file)
    assert hashes.known == {}
    monkeypatch.setattr(time, "time_ns", lambda: now + 303 * 10**9)
    hashes.hash(file)
    assert len(hashes.known) == 1


def test_a_file_of_the_same_size_and_time_is_another(tmp_path, monkeypatch):
    file, hashes = tmp_path / "file", FileHashes()
    file.write_text("one")
    state = file.stat()
    first = hashes.hash(file)
    assert hashes.known == {}  # it was written so recently that it may change in the same tick
    file.write_text("two")
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert hashes.hash(file) != first
    later = time.time_ns() + 303 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)
    second = hashes.hash(file)
    assert [digest for _, digest in hashes.known.values()] == [second]
    file.write_text("one")
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert hashes.hash(file) == first
