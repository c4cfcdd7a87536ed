"""The jobs of bench.gpu at tiny sizes on the CPU: contestants agree, and rows are kept.

On the stand-in for a CUDA device every job runs in both forms, and only times are invented.
"""

import json
import math
import os
from types import SimpleNamespace

import pytest
import torch

from bench import gpu, gpu_jobs
from simcore._kernels import choice
from support.stand_in import stand_in_device

MILLISECONDS = {"kernel": 2.0, "composed": 3.0, "torch": 5.0}
EAGER = gpu.Wanted(eager=True)


@pytest.fixture
def no_driver(monkeypatch):
    """Stand in for times and for the driver's counts of memory."""
    for name, value in (("max_memory_allocated", 7), ("memory_allocated", 3)):
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    for name in ("reset_peak_memory_stats", "empty_cache", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)

    def milliseconds(function, repeats=1, warm_up=0):
        function()
        form = {setting: form for form, setting in gpu.SETTINGS.items()}[choice.setting()]
        return {"ms": MILLISECONDS[form]}

    monkeypatch.setattr(gpu, "milliseconds", milliseconds)
    monkeypatch.setattr(torch.profiler, "profile", Profile)


# What torch's profiler says of kernels, and in microseconds.
KERNELS = {
    "void simcore::cuda::gram_tiles<simcore::cuda::TensorProduct<2>, (simcore": 7e3,
    "void simcore::cuda::contract<simcore::cuda::TensorProduct<2> >(unsigned short const*": 4e3,
    "simcore::cuda::column_sums(simcore::cuda::DeviceLayer const*, long": 2e3,
    "nvjet_hss_128x256_64x4_2x1_v_bz_coopA_TNN": 500.0,
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16": 500.0,
    "Memcpy DtoH (Device -> Pageable)": 250.0,
    "cudaLaunchKernel": 0.0,
}


class Profile:
    """Stands in for torch's profiler."""

    def __init__(self, activities):
        assert activities == [torch.profiler.ProfilerActivity.CUDA]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def key_averages(self):
        return [
            SimpleNamespace(key=key, self_device_time_total=time) for key, time in KERNELS.items()
        ]


def test_the_time_of_a_device_is_told_by_kernel(no_driver):
    called = []
    times = gpu.device_times(lambda: called.append(1))
    assert called == [1]
    assert times == {
        "device_ms": 14.25,
        "stages_ms": {
            "gram_tiles": 7.0,
            "contract": 4.0,
            "column_sums": 2.0,
            "matrix products": 1.0,
            "other": 0.25,
        },
    }


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
    if name == "matching":
        want = results["torch products, one-to-one"].double()
        torch.testing.assert_close(results["ours, one-to-one"], want, rtol=0, atol=1e-5)
    if name == "pwcca":
        want = results["torch svd of each pair"].double()
        torch.testing.assert_close(results["ours"], want, rtol=0, atol=1e-4)
    if name == "training":
        assert math.isfinite(float(results["ours"]))
    if name == "together":
        losses = results["ours, one after another"]
        assert len(losses) == 2
        assert all(math.isfinite(float(loss)) for loss in losses)
        want = results["ours, one batch"]
        torch.testing.assert_close(results["torch, one batch"], want, rtol=1e-4, atol=1e-4)


def fails(device):
    raise ValueError("no such size")


# A loss without log-determinants: torch makes zeros for their gradient where C++ sees the tensors
# of the stand-in, on the host.
HOST_ZEROS = ("training", "together")


def test_svcca_names_the_pairs_that_it_computes():
    ours, _ = gpu_jobs.TINY["svcca"]("cpu").contestants
    assert ours == "ours, 2211 pairs"  # of 66 layers, each with itself too


@pytest.mark.parametrize("name", [name for name in gpu_jobs.JOBS if name not in HOST_ZEROS])
def test_both_forms_run_where_an_operator_has_a_kernel(name, no_driver):
    with stand_in_device() as device:
        job = gpu_jobs.TINY[name]("cuda:0")
        taken = {"kernel": 0, "composed": 0, "torch": 0}
        rows = []
        for row in gpu.measure_job(job, {"copy": 1e9}, EAGER):
            rows.append(row)
            assert "failed" not in row
            taken[row["form"]] += sum(device.kernels.values())
            device.kernels.clear()
            rows.extend(gpu.decision(rows))
    assert (taken["kernel"] > 0) == bool(job.operators)
    assert taken["composed"] == taken["torch"] == 0
    assert choice.VARIABLE not in os.environ
    kernels = [row["contestant"] for row in rows if row.get("form") == "kernel"]
    decided = [row for row in rows if row["contestant"].startswith("decision, ")]
    assert [row["contestant"] for row in decided] == [f"decision, {one}" for one in kernels]
    assert all(row["gain"] == 1.5 and row["kernel_stays"] for row in decided)
    plain = any(name.startswith("torch") for name in job.contestants)
    assert all(row["torch_ms"] == (5.0 if plain else None) for row in decided)


def test_a_grid_of_cka_runs_in_both_forms(no_driver, monkeypatch):
    monkeypatch.setattr(gpu, "drifting_layers", lambda count, n, p: small(count))
    monkeypatch.setattr(gpu.formulas, "float16_product", lambda a, b: a.float() @ b.float().mT)

    def small(count):
        return torch.randn(count, 70, 5, device="cuda")

    with stand_in_device() as device:
        rows = []
        for row in gpu.measure("cka13", 3, {"float16": 1e9, "copy": 1e9}, EAGER):
            rows.append(row)
            rows.extend(gpu.decision(rows))
        assert device.kernels["gram_terms"] > 0
    assert not [row for row in rows if "failed" in row]
    exact = [row["error"] for row in rows if "error" in row]
    assert len(exact) == 3 * 2 + 3
    assert max(exact) < 1e-5
    decided = {row["contestant"]: row["torch_ms"] for row in rows if "gain" in row}
    assert decided["decision, ours highest"] == decided["decision, ours medium"] == 5.0
    assert decided["decision, ours highest rbf"] == 5.0  # of the same kernel
    forms = [row["form"] for row in rows if "form" in row]
    assert forms == sorted(forms, key=gpu.ORDER.index)  # what may take long comes last


@pytest.mark.parametrize(("ms", "calls"), [(gpu.LONG_MS / 2, 1 + 2 + gpu.REPEATS + 1), (1e5, 2)])
def test_a_long_call_is_measured_once(no_driver, monkeypatch, ms, calls):
    called = []

    def milliseconds(function, repeats=gpu.REPEATS, warm_up=2):
        for _ in range(warm_up + repeats):
            function()
        return {"ms": ms}

    monkeypatch.setattr(gpu, "milliseconds", milliseconds)
    row, result = gpu.timed(lambda: called.append(0) or "grid")
    assert len(called) == calls
    assert (row["ms"], result) == (ms, "grid")
    assert ("device_ms" in row) == (ms < gpu.LONG_MS)


@pytest.mark.parametrize(
    ("kernel", "composed", "stays"),
    [(2.0, 3.0, True), (2.0, 2.9, False), (None, 3.0, False), (2.0, None, True)],
)
def test_a_kernel_stays_where_it_gains_enough(kernel, composed, stays):
    times = {"kernel": kernel, "composed": composed}
    rows = [
        {"job": "a", "contestant": "ours", "form": form, **({"ms": ms} if ms else {"failed": "no"})}
        for form, ms in times.items()
    ]
    (row,) = gpu.decision(rows)
    assert row["kernel_stays"] == stays
    assert row["gain"] == (composed / kernel if kernel and composed else None)


def test_every_row_is_kept_whatever_fails(tmp_path, no_driver, monkeypatch):
    contestants = {"ours": lambda: 1, "torch": lambda: fails("cuda"), "ours, other": lambda: 2}
    jobs = {"good": lambda device: gpu_jobs.Job("good", contestants), "bad": fails}
    monkeypatch.setattr(gpu_jobs, "JOBS", jobs)
    monkeypatch.setattr(
        gpu, "milliseconds", lambda function, repeats=1, warm_up=0: {"ms": (function() or 0) / 4}
    )

    record = gpu.Record(tmp_path, {"device": "Some GPU"})
    assert not gpu.run(["bad", "good"], record, {})
    assert gpu.run(["good"], gpu.Record(tmp_path, {"device": "Some GPU"}), {})

    stored = json.loads((tmp_path / "gpu-some-gpu.json").read_text())
    rows = [
        (row["job"], row["contestant"], row.get("ms"), row.get("failed")) for row in stored["rows"]
    ]
    assert rows == [
        ("bad", "", None, "ValueError: no such size"),
        ("good", "torch", None, "ValueError: no such size"),
        ("good", "ours", 0.25, None),
        ("good", "ours, other", 0.5, None),
    ]
    assert stored["device"] == "Some GPU"
    assert not list(tmp_path.glob("*.partial"))


def test_forms_of_two_runs_are_decided_in_the_second_one(tmp_path, no_driver, monkeypatch):
    job = gpu_jobs.Job("inn", {"ours": lambda: 1, "torch": lambda: 2}, ("affine_coupling",))
    monkeypatch.setattr(gpu_jobs, "JOBS", {"training": lambda device: job})

    def rows_after(*forms):
        record = gpu.Record(tmp_path, {"device": "Some GPU"})
        assert gpu.run(["training"], record, {}, gpu.Wanted(forms=forms))
        return [(row["contestant"], row.get("form"), row.get("gain")) for row in record.rows]

    first = [("ours", "kernel", None), ("torch", "torch", None)]
    later = [("ours", "composed", None), ("decision, ours", None, 1.5)]
    assert rows_after("torch", "kernel") == first
    assert rows_after("composed") == first + later
    assert rows_after("composed") == first + later
    assert rows_after("torch", "kernel") == [later[0], *first]
