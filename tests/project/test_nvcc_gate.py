"""The compile gate of the CUDA kernels reads ptxas's report as ptxas writes it."""

import sys

import pytest

from tools.nvcc_gate import FEW, SLACK, allowed_in, bounds_in, complaints, kernels_of, main

CONTRACT = "_ZN7simcore4cuda8contractINS0_13TensorProductILi3EEEEEvPKNT_6StoredEl"
REPORT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{symbol}' for 'sm_80'
ptxas info    : Function properties for {symbol}
    {frame} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers{shared}
"""


def report(symbol=CONTRACT, stores=0, loads=0, registers=FEW, shared=0, frame=0):
    smem = f", {shared} bytes smem" if shared else ""
    return REPORT.format(
        symbol=symbol, stores=stores, loads=loads, registers=registers, shared=smem, frame=frame
    )


def lines(text, allowed=frozenset(), bounds=()):
    return [*complaints(kernels_of(text), set(allowed), dict(bounds))]


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        (CONTRACT, "contract<TensorProduct<3>>"),
        ("_ZN7simcore4cuda8contractIfEEvPKfl", "contract<float>"),
        ("_ZN7simcore4cuda12finish_pairsEPKd", "finish_pairs"),
    ],
)
def test_names_have_template_arguments_and_no_namespaces(symbol, name):
    (kernel,) = kernels_of(report(symbol, registers=80, shared=640))
    assert (kernel.name, kernel.arch) == (name, "sm_80")
    assert (kernel.registers, kernel.shared) == (80, 640)


@pytest.mark.parametrize(("stores", "loads"), [(4, 0), (0, 4), (1200, 1300)])
def test_a_spill_is_found_and_named(stores, loads):
    (line,) = lines(report(stores=stores, loads=loads))
    assert "contract<TensorProduct<3>> (sm_80)" in line
    assert f"{stores} bytes spill stores, {loads}" in line


def test_a_stack_frame_without_spills_is_found():
    (line,) = lines(report(frame=40))
    assert line == "contract<TensorProduct<3>> (sm_80): wanted no stack frame, got 40 bytes"
    assert lines(report(frame=40), {"contract"}) == []


def test_no_spill_and_an_allowed_one_pass():
    assert lines(report()) == []
    assert lines(report(stores=8, loads=8), {"contract"}) == []
    assert lines(report(stores=8, loads=8), {"contrac", "tract"}) != []


def test_registers_are_held_to_the_bound_that_fits_best():
    (line,) = lines(report(registers=FEW + 1))
    assert f"contract<TensorProduct<3>> (sm_80): wanted at most {FEW} registers" in line
    for name in ("contract", "contract<TensorProduct", "contract<TensorProduct<3>>"):
        assert lines(report(registers=100), bounds={name: 100}) == []
        (line,) = lines(report(registers=101), bounds={name: 100})
        assert line.endswith("wanted at most 100 registers, got 101")
    assert lines(report(registers=100), bounds={"contrac": 100, "contract<Tensor": 100}) != []
    both = {"contract": 90, "contract<TensorProduct<3>>": 100}
    assert lines(report(registers=100), bounds=both) == []


def test_a_bound_that_nothing_comes_near_is_found():
    assert lines(report(registers=80), bounds={"contract": 80 + SLACK}) == []
    (line,) = lines(report(registers=80), bounds={"contract": 81 + SLACK})
    assert line == f"contract: wanted a bound within {SLACK} of 80 registers, got {81 + SLACK}"


def test_shared_memory_that_a_device_need_not_give_is_found():
    assert lines(report(shared=48 << 10)) == []
    (line,) = lines(report(shared=(48 << 10) + 4))
    assert "static shared memory, got 49156" in line


def test_leave_needs_a_reason(tmp_path):
    source = tmp_path / "a.cu"
    source.write_text(
        "// spills allowed: slow: rarely run\n// spills allowed: fast:\n"
        "// registers: sum<float,2>: 96: two blocks\n// registers: fast: 96:\n"
    )
    assert allowed_in([source]) == {"slow"}
    assert bounds_in([source]) == {"sum<float,2>": 96}


@pytest.mark.parametrize(("stores", "code"), [(0, 0), (4, 1)])
def test_the_command_fails_with_its_kernels_and_writes_what_they_take(
    tmp_path, capsys, stores, code
):
    source, made = tmp_path / "a.cu", tmp_path / "a.o"
    source.touch()
    text = report(stores=stores, loads=stores, shared=128)
    program = f"import sys; sys.stderr.write({text!r})"
    assert main([sys.executable, "-c", program, str(source), "-o", str(made)]) == code
    assert bool(capsys.readouterr().err) == bool(code)
    table = (tmp_path / "a.o.kernels").read_text().splitlines()
    assert table[1].split("\t") == [str(FEW), "128", "sm_80", "contract<TensorProduct<3>>"]


def test_a_failing_or_silent_compiler_fails(tmp_path, capsys):
    source = tmp_path / "a.cu"
    source.touch()
    assert main([sys.executable, "-c", "raise SystemExit(3)", str(source)]) == 3
    assert main([sys.executable, "-c", "", str(source)]) == 1
    assert "no report" in capsys.readouterr().err
