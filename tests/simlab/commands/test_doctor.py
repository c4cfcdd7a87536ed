"""`simcore doctor`: what it prints of a machine with a GPU, and of one without."""

import json

import pytest

from simcore._kernels import choice, doctor, verdicts

PASSED = verdicts.Row(True, "", 1.0, 4.0)
FAILED = verdicts.Row(False, "no answer in 180 s")


@pytest.fixture
def one_gpu(monkeypatch, tmp_path):
    """Let a device be found whose kernel of couplings passed, and whose derivative failed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(verdicts, "_known", {})
    monkeypatch.setattr(choice, "_LAUNCHERS", dict.fromkeys(choice.KERNELS, print))
    rows = {"affine_coupling": PASSED, "affine_coupling_backward": FAILED}
    asked = []

    def ask(family, device, names, timed=False):
        asked.append((family, timed))
        return verdicts.Verdict({name: rows.get(name, PASSED) for name in names})

    def device_of(device, check):
        operators = doctor.operator_rows(device, check)
        named = {"device": str(device), "name": "NVIDIA H100", "capability": "9.0"}
        return {**named, "memory": 80 * 2**30, "operators": operators}

    monkeypatch.setattr(verdicts, "ask", ask)
    monkeypatch.setattr(doctor, "_device", device_of)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    return asked


def test_every_family_is_checked_and_timed(simcore, one_gpu):
    code, printed, _ = simcore("doctor", "--json")
    assert code == 0
    (device,) = json.loads(printed)["devices"]
    assert one_gpu == [(family, True) for family in choice.FAMILIES]
    rows = {row["operator"]: row for row in device["operators"]}
    assert (rows["affine_coupling"]["uses"], rows["affine_coupling"]["gain"]) == ("kernel", 4.0)
    failed = rows["affine_coupling_backward"]
    assert (failed["uses"], failed["state"], failed["error"]) == (
        "composed",
        "failed",
        FAILED.error,
    )
    code, printed, _ = simcore("doctor")
    assert code == 0
    for words in (
        "cuda:0: NVIDIA H100, 80 GiB, 9.0",
        "4.0 x",
        FAILED.error,
        "SIMCORE_KERNELS=auto",
    ):
        assert words in printed


def test_the_cache_is_read_without_a_check(simcore, one_gpu, monkeypatch):
    monkeypatch.setattr(verdicts, "known", lambda family, device: None)
    code, printed, _ = simcore("doctor", "--cached", "--json")
    assert code == 0
    assert one_gpu == []
    (device,) = json.loads(printed)["devices"]
    assert {row["state"] for row in device["operators"]} == {"not checked"}


def test_a_machine_without_a_gpu(simcore, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, printed, _ = simcore("doctor")
    assert code == 0
    assert "no CUDA device: grids run on the CPU" in printed


def test_a_wrong_setting_is_one_line(simcore, monkeypatch):
    monkeypatch.setenv(choice.VARIABLE, "maybe")
    code, _, error = simcore("doctor")
    assert code == 2
    assert error == ["error: SIMCORE_KERNELS: wanted 'auto', 'on' or 'off', got 'maybe'"]
