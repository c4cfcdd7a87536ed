"""Hashes: a file is read once, however often it is asked for, and again when it is another."""

import time
from pathlib import Path

from simlab.models.sources import resolve
from simlab.representations.extract import extract
from simlab.representations.folder import load_representations
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
