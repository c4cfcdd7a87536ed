"""The compile gate of the CUDA kernels reads ptxas's report as ptxas writes it."""

import sys

import pytest

from tools.nvcc_gate import allowed_in, main, spilling

REPORT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN7simcore4cuda8contractIfEEvPKfl' for 'sm_80'
ptxas info    : Function properties for _ZN7simcore4cuda8contractIfEEvPKfl
    8 bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used 80 registers, used 1 barriers
"""


@pytest.mark.parametrize(("stores", "loads"), [(4, 0), (0, 4), (1200, 1300)])
def test_a_spill_is_found_and_named(stores, loads):
    (line,) = spilling(REPORT.format(stores=stores, loads=loads), set())
    assert "contract" in line
    assert "sm_80" in line
    assert f"{stores} bytes spill stores, {loads}" in line


def test_no_spill_and_an_allowed_one_pass():
    assert spilling(REPORT.format(stores=0, loads=0), set()) == []
    assert spilling(REPORT.format(stores=8, loads=8), {"contract"}) == []
    assert spilling(REPORT.format(stores=8, loads=8), {"contrac", "tract"}) != []


def test_leave_to_spill_needs_a_reason(tmp_path):
    source = tmp_path / "a.cu"
    source.write_text("// spills allowed: slow: rarely run\n// spills allowed: fast:\n")
    assert allowed_in([source]) == {"slow"}


@pytest.mark.parametrize(("stores", "code"), [(0, 0), (4, 1)])
def test_the_command_fails_with_its_kernels(tmp_path, capsys, stores, code):
    source = tmp_path / "a.cu"
    source.touch()
    report = REPORT.format(stores=stores, loads=stores)
    command = [sys.executable, "-c", f"import sys; sys.stderr.write({report!r})", str(source)]
    assert main(command) == code
    assert bool(capsys.readouterr().err) == bool(code)


def test_a_failing_or_silent_compiler_fails(tmp_path, capsys):
    source = tmp_path / "a.cu"
    source.touch()
    assert main([sys.executable, "-c", "raise SystemExit(3)", str(source)]) == 3
    assert main([sys.executable, "-c", "", str(source)]) == 1
    assert "no report" in capsys.readouterr().err
