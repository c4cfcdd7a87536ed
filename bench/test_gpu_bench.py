"""The jobs of bench.gpu at tiny sizes on the CPU: contestants agree, and rows are kept."""

import json
import math

import pytest
import torch

from bench import gpu, gpu_jobs


@pytest.mark.parametrize("name", gpu_jobs.JOBS)
def test_contestants_run(name):
    job = gpu_jobs.TINY[name]("cpu")
    assert set(gpu_jobs.TINY) == set(gpu_jobs.JOBS)
    results = {}
    for contestant, function in job.contestants.items():
        if not contestant.startswith("compiled"):
            results[contestant] = function()
    if name == "attention":
        for other in results.values():
            torch.testing.assert_close(other.double(), results["ours"], rtol=0, atol=1e-5)
    if name == "coupling":
        for got, want in zip(results["torch half"], results["ours"], strict=True):
            torch.testing.assert_close(got, want)
    if name == "training":
        assert math.isfinite(float(results["ours"]))
    if name == "together":
        losses = results["ours, one after another"]
        assert len(losses) == 2
        assert all(math.isfinite(float(loss)) for loss in losses)


def fails(device):
    raise ValueError("no such size")


def test_every_row_is_kept_whatever_fails(tmp_path, monkeypatch):
    contestants = {"ours": lambda: 1, "torch": lambda: fails("cuda"), "ours, other": lambda: 2}
    jobs = {"good": lambda device: gpu_jobs.Job("good", contestants), "bad": fails}
    monkeypatch.setattr(gpu_jobs, "JOBS", jobs)
    for name, value in (("max_memory_allocated", 7), ("memory_allocated", 3)):
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    for name in ("reset_peak_memory_stats", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(gpu, "milliseconds", lambda function, repeats=1: {"ms": function() / 4})

    record = gpu.Record(tmp_path, {"device": "Some GPU"})
    assert not gpu.run(["bad", "good"], record, {})
    assert gpu.run(["good"], gpu.Record(tmp_path, {"device": "Some GPU"}), {})

    stored = json.loads((tmp_path / "gpu-some-gpu.json").read_text())
    rows = [
        (row["job"], row["contestant"], row.get("ms"), row.get("failed")) for row in stored["rows"]
    ]
    assert rows == [
        ("bad", "", None, "ValueError: no such size"),
        ("good", "ours", 0.25, None),
        ("good", "torch", None, "ValueError: no such size"),
        ("good", "ours, other", 0.5, None),
    ]
    assert stored["device"] == "Some GPU"
    assert not list(tmp_path.glob("*.partial"))
