"""Kernel or composed form: settings, self-checks in child processes, and what a failure does.

Operators of the CPU stand for kernels of a device, and kernels that fail are planted among them.
"""

import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import replace

import pytest
import torch

from simcore import build_info
from simcore._kernels import choice, doctor, self_check, verdicts
from simcore._kernels.self_check import OF_FAMILY
from support.stand_in import CUDA, stand_in_device

CPU = torch.device("cpu")
COUPLING = ("affine_coupling", "affine_coupling_backward")
# The program of a child: operators of the CPU as kernels, the first of which is replaced.
PROGRAM = """
import os, sys, time
sys.path[:] = {path!r}
import torch
from simcore._kernels import choice, self_check

def wrong(*given):
    y, log_det = torch.ops.simcore.affine_coupling(*given)
    y[..., -1] += 1e-3
    return y, log_det

def refused(*given):
    raise RuntimeError("CUDA error: an illegal memory access was encountered\\nmore")

def hangs(*given):
    time.sleep(600)

def dies(*given):
    os.abort()

def full(*given):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

def full_at_launch(*given):
    raise RuntimeError("simcore, CUDA: couple_rows: out of memory")

choice._LAUNCHERS = {{name: getattr(torch.ops.simcore, name) for name in choice.KERNELS}}
choice._LAUNCHERS["affine_coupling"] = {planted}
self_check.main({family!r}, {device!r}, {out!r}, {timed})
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(choice.VARIABLE, raising=False)
    monkeypatch.setattr(verdicts, "_known", {})


@pytest.fixture
def kernels(monkeypatch):
    """Let every operator have a kernel."""
    found = {name: getattr(torch.ops.simcore, name) for name in choice.KERNELS}
    monkeypatch.setattr(choice, "_LAUNCHERS", found)


class Copy:
    """A child that is a copy of this process, where torch has been imported."""

    def __init__(self, command, *, stdout, env, **_):
        self.pid = os.fork()
        if not self.pid:
            try:
                faulthandler.disable()  # pytest's writes to the terminal
                os.dup2(stdout.fileno(), 1)
                os.dup2(stdout.fileno(), 2)
                os.environ.update(env)
                exec(command[-1], {})
                code = 0
            except BaseException:
                code = 1
                os.write(2, traceback.format_exc().encode())
            os._exit(code)

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        raise subprocess.TimeoutExpired("a copy", seconds)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)


def plant(monkeypatch, planted):
    """Let children check operators of the CPU, with a planted one; return the children started."""
    monkeypatch.setattr(verdicts.subprocess, "Popen", Copy)
    started = []

    def command(family, device, out, timed):
        started.append(family)
        given = {"family": family, "device": str(device), "out": str(out), "timed": timed}
        text = PROGRAM.format(path=sys.path, planted=planted, **given)
        return [sys.executable, "-c", text]

    monkeypatch.setattr(verdicts, "child_command", command)
    return started


@pytest.mark.parametrize("family", sorted(set(choice.FAMILIES) - {"spectral"}))
def test_kernels_of_the_cpu_pass_every_case(family, kernels):
    names = set()
    for name, case in OF_FAMILY[family](CPU):
        launch = choice.launcher(name)
        if name == "gram_terms":
            # The CPU has it as a method of hsic_terms.
            def launch(*given):
                return torch.ops.simcore.hsic_terms(*given[:5], "gram", *given[5:])

        assert self_check.difference(launch, choice.KERNELS[name].composed, case) == "", case.name
        names.add(name)
    assert names == {name for name, kernel in choice.KERNELS.items() if kernel.family == family}


def test_singular_systems_are_compared_whatever_their_signs():
    for name, case in OF_FAMILY["spectral"](CPU):
        composed = choice.KERNELS[name].composed

        def turned(m, composed=composed):
            u, s, v = composed(m)
            return -u, s, -v

        def stretched(m, composed=composed):
            u, s, v = composed(m)
            return u * 1.001, s, v

        assert self_check.difference(turned, composed, case) == ""
        assert "differs by" in self_check.difference(stretched, composed, case)


def test_a_difference_of_any_kind_is_named():
    name, case = next(OF_FAMILY["coupling"](CPU))
    composed = choice.KERNELS[name].composed
    for change, words in (
        (lambda t: t + 1e-3, "result 0 differs by"),
        (lambda t: t[:-1], "another shape"),
        (lambda t: t.where(t > t.min(), torch.nan), "nan in other places"),
        (lambda t: t.where(t > t.min(), torch.inf), "result 0 differs by inf"),
    ):

        def kernel(*given, change=change):
            y, log_det = composed(*given)
            return change(y), log_det

        assert words in self_check.difference(kernel, composed, case)


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        ("wrong", r"affine_coupling: \(7, 5\), torch.float32: result 0 differs by"),
        ("refused", "affine_coupling: .*: CUDA error: an illegal memory access was encountered"),
        ("hangs", "affine_coupling: no answer in 5 s"),
        ("dies", "affine_coupling: the check ended with code -6"),
    ],
)
def test_a_planted_failure_gives_one_warning_and_the_composed_form(
    planted, words, kernels, monkeypatch, recwarn
):
    monkeypatch.setattr(verdicts, "TIMEOUT", 5.0 if planted == "hangs" else 120.0)
    started = plant(monkeypatch, planted)
    assert not choice.takes_kernel("affine_coupling", CPU)
    (warning,) = recwarn
    message = str(warning.message)
    assert "on cpu (cpu) operations of torch replace kernels" in message
    assert re.search(words, message), message
    # Asked again, by this process and by another one that finds the cache.
    assert not choice.takes_kernel("affine_coupling", CPU)
    of_next = planted in ("wrong", "refused")  # the check came to the next operator
    assert choice.takes_kernel("affine_coupling_backward", CPU) == of_next
    assert len(recwarn) == 1
    verdicts._known.clear()
    assert not choice.takes_kernel("affine_coupling", CPU)
    assert len(recwarn) == 2
    assert started == ["coupling"]


def test_a_check_that_passes_is_kept_for_the_next_process(kernels, monkeypatch, recwarn):
    started = plant(monkeypatch, "torch.ops.simcore.affine_coupling")
    assert all(choice.takes_kernel(name, CPU) for name in COUPLING)
    path = verdicts.path_of("coupling", CPU)
    assert json.loads(path.read_text())["of"]["device"] == "cpu"
    verdicts._known.clear()
    assert all(choice.takes_kernel(name, CPU) for name in COUPLING)
    assert build_info()["checked"] == {"cpu": dict.fromkeys(COUPLING, "kernel")}
    assert started == ["coupling"]
    verdicts._known.clear()
    path.write_text(path.read_text()[:40])  # half a file, as a full disk may leave
    assert choice.takes_kernel("affine_coupling", CPU)
    assert started == ["coupling"] * 2
    assert not recwarn


def test_a_machine_that_cannot_check_takes_the_composed_form_until_the_process_ends(
    kernels, monkeypatch
):
    asked = []

    def command(*given):
        asked.append(given)
        return [sys.executable, "-c", "raise MemoryError('no room on the device')"]

    monkeypatch.setattr(verdicts, "child_command", command)
    with pytest.warns(UserWarning, match="could not run: .*code 1.*no room on the device"):
        assert not choice.takes_kernel("affine_coupling", CPU)
    assert not choice.takes_kernel("affine_coupling", CPU)
    assert len(asked) == 1
    assert not verdicts.path_of("coupling", CPU).exists()


@pytest.mark.parametrize("planted", ["full", "full_at_launch"])
def test_a_device_without_room_for_a_check_is_no_fault_of_the_kernel(planted, kernels, monkeypatch):
    started = plant(monkeypatch, planted)
    with pytest.warns(UserWarning, match="could not run: .*out of memory"):
        assert not choice.takes_kernel("affine_coupling", CPU)
    assert not verdicts.path_of("coupling", CPU).exists()
    # The next process, with room.
    verdicts._known.clear()
    plant(monkeypatch, "torch.ops.simcore.affine_coupling")
    assert choice.takes_kernel("affine_coupling", CPU)
    assert started == ["coupling"]


def test_a_cache_that_cannot_be_written_is_told(kernels, monkeypatch, tmp_path):
    plant(monkeypatch, "torch.ops.simcore.affine_coupling")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="a self-check was not kept"):
        assert choice.takes_kernel("affine_coupling", CPU)


def never(*given):
    raise AssertionError("no check was wanted")


def test_settings(kernels, monkeypatch):
    monkeypatch.setattr(verdicts, "ask", never)
    for value, wanted in (("on", True), ("off", False)):
        monkeypatch.setenv(choice.VARIABLE, value)
        assert all(choice.takes_kernel(name, CPU) == wanted for name in choice.KERNELS)
        assert build_info()["kernels"] == value
    monkeypatch.setenv(choice.VARIABLE, "yes")
    with pytest.raises(
        ValueError, match="SIMCORE_KERNELS: wanted 'auto', 'on' or 'off', got 'yes'"
    ):
        choice.takes_kernel("gram_terms", CPU)


def test_a_build_without_kernels_takes_the_composed_forms(monkeypatch):
    monkeypatch.setattr(choice, "_LAUNCHERS", {})
    monkeypatch.setattr(verdicts, "ask", never)
    assert not any(choice.takes_kernel(name, CPU) for name in choice.KERNELS)
    monkeypatch.setenv(choice.VARIABLE, "on")
    with pytest.raises(RuntimeError, match="a build without CUDA kernels, got 'on'"):
        choice.takes_kernel("gram_terms", CPU)


def test_the_faster_form_is_taken(kernels, monkeypatch):
    monkeypatch.setattr(verdicts, "ask", never)
    for seconds, wanted in (((1.0, 3.0), True), ((1.0, 0.9), True), ((3.0, 1.0), False)):
        rows = {"small_svd": verdicts.Row(True, "", *seconds)}
        verdicts._known["spectral", "cpu"] = verdicts.Verdict(rows)
        assert choice.takes_kernel("small_svd", CPU) == wanted
    rows = {"small_svd": verdicts.Row(False, "wrong", 1.0, 9.0)}
    verdicts._known["spectral", "cpu"] = verdicts.Verdict(rows)
    assert not choice.takes_kernel("small_svd", CPU)


def test_a_kernel_that_lost_on_an_h100_is_not_taken_where_nothing_was_timed(kernels, monkeypatch):
    assert set(verdicts.GAINS) == set(choice.KERNELS)
    monkeypatch.setitem(verdicts.GAINS, "small_svd", 0.5)
    monkeypatch.setattr(verdicts, "ask", never)  # nor is it checked
    assert not choice.takes_kernel("small_svd", CPU)
    verdicts._known["spectral", "cpu"] = verdicts.Verdict({"small_svd": verdicts.Row(True)})
    assert not choice.takes_kernel("small_svd", CPU)
    monkeypatch.setitem(verdicts.GAINS, "small_svd", 1.5)
    assert choice.takes_kernel("small_svd", CPU)


def test_a_verdict_belongs_to_the_release_of_torch_and_to_the_build(monkeypatch):
    paths = {verdicts.path_of("coupling", CPU), verdicts.path_of("hsic", CPU)}
    monkeypatch.setattr(torch, "__version__", "99.0")
    paths.add(verdicts.path_of("coupling", CPU))
    monkeypatch.setattr(verdicts, "build_key", lambda: "another")
    paths.add(verdicts.path_of("coupling", CPU))
    assert len(paths) == 4


def gram(x, kernel="linear", bandwidth=1.0):
    return (x, [], kernel, "biased", bandwidth, 0, "highest")


@pytest.mark.parametrize(
    ("name", "arguments", "covered"),
    [
        ("gram_terms", gram([torch.ones(4, 2)]), True),
        ("gram_terms", gram([torch.ones(4, 2, dtype=torch.bfloat16)]), True),
        ("gram_terms", gram([torch.ones(4, 2), torch.ones(4, 2).double()]), False),
        ("gram_terms", gram([torch.ones(4, 2)], "rbf", 7.9), True),
        ("gram_terms", gram([torch.ones(4, 2)], "rbf", 8.0), False),
        ("gram_terms", gram([torch.ones(4, 2)], "linear", 8.0), True),
        ("attention_similarity", ([torch.ones(1, 1, 1)], [], [1], "pearson", False, 0), False),
        ("attention_similarity", ([torch.ones(1, 1, 1)], [], [1], "js", False, 0), True),
    ],
)
def test_some_arguments_are_never_for_the_kernel(monkeypatch, name, arguments, covered):
    """Calls of the kernel and of the composed form are noted, and nothing is computed."""
    calls = []
    composed = replace(choice.KERNELS[name], composed=lambda *_: calls.append("composed"))
    monkeypatch.setitem(choice.KERNELS, name, composed)
    monkeypatch.setattr(choice, "_LAUNCHERS", {name: lambda *_: calls.append("kernel")})
    monkeypatch.setenv(choice.VARIABLE, "on")
    choice._chosen(name)(*arguments)
    assert calls == ["kernel" if covered else "composed"]


def test_layers_that_a_kernel_does_not_resolve_take_the_composed_form(kernels, monkeypatch):
    def declines(*_):
        raise NotImplementedError("X[0]: wanted entries of about one size")

    monkeypatch.setitem(choice._LAUNCHERS, "gram_terms", declines)
    monkeypatch.setenv(choice.VARIABLE, "on")
    given = gram([torch.randn(8, 3)], "rbf")
    wanted = choice.KERNELS["gram_terms"].composed(*given)
    for found, want in zip(choice._chosen("gram_terms")(*given), wanted, strict=True):
        assert torch.equal(found, want)


def test_nothing_is_checked_while_a_graph_is_captured(kernels, monkeypatch):
    monkeypatch.setattr(verdicts, "ask", never)
    monkeypatch.setitem(verdicts.GAINS, "small_svd", 1.5)
    monkeypatch.setattr(choice, "is_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="small_svd: wanted a kernel that was checked on cpu"):
        choice.takes_kernel("small_svd", CPU)
    rows = {"small_svd": verdicts.Row(True)}
    verdicts._known["spectral", "cpu"] = verdicts.Verdict(rows)
    assert choice.takes_kernel("small_svd", CPU)


def test_the_choice_is_registered_and_finds_the_device():
    given = (torch.randn(4, 3), torch.randn(4, 6), 1.3, False)
    for kernels, count in ((True, 1), (False, 0)):
        with stand_in_device(kernels) as device:
            torch.ops.simcore.affine_coupling(given[0].to(CUDA), given[1].to(CUDA), *given[2:])
        assert device.kernels["affine_coupling"] == count


def test_extensions_give_their_kernels_to_python():
    """As for CUDA: the kernel that C++ has registered, called from a function of Python."""
    kernel = torch.library.get_kernel("simcore::affine_coupling", "CPU")
    given = (torch.randn(4, 3), torch.randn(4, 6), 1.3, False)
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    want = torch.ops.simcore.affine_coupling(*given)
    for one, other in zip(kernel.call_boxed(keys, *given), want, strict=True):
        assert torch.equal(one, other)


def test_the_table_of_checks(kernels, monkeypatch):
    rows = {name: verdicts.Row(True, "", 1.0, 4.0) for name in COUPLING}
    rows["affine_coupling"] = verdicts.Row(False, "no answer")
    verdicts._known["coupling", "cpu"] = verdicts.Verdict(rows)
    table = {row["operator"]: row for row in doctor.operator_rows(CPU, check=False)}
    assert set(table) == set(choice.KERNELS)
    states = {name: (row["state"], row["uses"], row["gain"]) for name, row in table.items()}
    assert states["affine_coupling"] == ("failed", "composed", None)
    assert states["affine_coupling_backward"] == ("passed", "kernel", 4.0)
    assert states["gram_terms"] == ("not checked", "kernel", None)
    monkeypatch.setattr(choice, "_LAUNCHERS", {})
    bare = doctor.operator_rows(CPU, check=True)
    assert {row["state"] for row in bare} == {"not built"}
    assert {row["uses"] for row in bare} == {"composed"}


@pytest.mark.slow
def test_children_time_both_forms(kernels, monkeypatch):
    plant(monkeypatch, "torch.ops.simcore.affine_coupling")
    verdict = verdicts.ask("coupling", CPU, list(COUPLING), timed=True)
    assert all(row.passed and row.gain > 0 for row in verdict.rows.values())
