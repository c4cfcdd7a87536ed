"""tools/gpu_smoke.py on the stand-in for a CUDA device: what it calls well, and what it finds."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from simcore._kernels import choice
from support.stand_in import stand_in_device
from tools import gpu_smoke


@pytest.fixture
def device(monkeypatch):
    """A device with kernels, streams and graphs, and with 16 GB."""
    monkeypatch.setenv(choice.VARIABLE, "on")
    stream = SimpleNamespace(synchronize=lambda: None, replay=lambda: None)
    for name, value in (
        ("Stream", lambda: stream),
        ("CUDAGraph", lambda: stream),
        ("stream", nullcontext),
        ("graph", nullcontext),
        ("synchronize", lambda: None),
        ("_sleep", lambda cycles: None),
    ):
        monkeypatch.setattr(torch.cuda, name, value)
    with stand_in_device() as device:
        couple = choice._LAUNCHERS["affine_coupling"]

        def with_a_memory(x, *arguments):
            if x.numel() > 2**32:
                raise torch.OutOfMemoryError("CUDA out of memory: got 7 free bytes of 9")
            return couple(x, *arguments)

        monkeypatch.setitem(choice._LAUNCHERS, "affine_coupling", with_a_memory)
        yield device


def printed(capsys):
    """Return the lines of the checks, without the one about the build."""
    return dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines()[1:])


@pytest.mark.deep
def test_all_is_well(device, capsys):
    assert gpu_smoke.main([]) == 0
    lines = printed(capsys)
    assert set(lines.values()) == {"ok"}
    assert set(gpu_smoke.CHECKS) < set(lines)
    assert {name.split(",")[0] for name in lines} >= set(choice.KERNELS)
    assert device.kernels["gram_terms"] > len(gpu_smoke.CHECKS)


@pytest.mark.parametrize("name", gpu_smoke.CHECKS)
def test_a_check_is_run_alone(name, device, capsys):
    assert gpu_smoke.main([name]) == 0
    assert printed(capsys) == {name: "ok"}


def test_no_check_has_another_name(capsys):
    assert gpu_smoke.main(["full", "empty"]) == 2
    assert "got empty" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:cka_grid. nan")
def test_kernels_that_are_wrong_are_named(device, capsys, monkeypatch):
    def undefined(x, *arguments):
        return [torch.full((len(x),), torch.nan, device="cuda")] * 3

    def smaller(x, *arguments):
        return [torch.zeros(7, device="cuda")] * 2

    monkeypatch.setitem(choice._LAUNCHERS, "gram_terms", undefined)
    monkeypatch.setitem(choice._LAUNCHERS, "affine_coupling", smaller)
    assert gpu_smoke.main([]) == 1
    bad = {name: line for name, line in printed(capsys).items() if line != "ok"}
    checks = {name: bad.pop(name) for name in gpu_smoke.CHECKS}
    assert checks["full"] == "wanted an error OutOfMemoryError, got none"
    assert checks["memory"] == "wanted finite terms, got others"
    assert checks["stream"] == checks["capture"] == "wanted the bits of another call, got others"
    assert {name.split(",")[0] for name in bad} == {"gram_terms", "affine_coupling"}


def test_a_fault_of_the_device_is_printed_and_the_next_check_runs(device, capsys, monkeypatch):
    def fault(*arguments):
        raise RuntimeError("an illegal memory access\nand its frames")

    monkeypatch.setitem(choice._LAUNCHERS, "gram_terms", fault)
    assert gpu_smoke.main(["capture", "full"]) == 1
    lines = capsys.readouterr().out.splitlines()[1:]
    assert lines == ["capture: RuntimeError: an illegal memory access", "full: ok"]
