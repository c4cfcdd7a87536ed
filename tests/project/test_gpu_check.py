"""tools/gpu_check.sh with stand-ins for the programs of a machine with a GPU."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# The program appends its arguments to a log; a word of FAIL in them makes it fail, a word of HANG
# makes it wait. What it prints is what the real ones print at their end. It has kernels once it was
# asked to build them, or where BUILT is set.
STAND_IN = """#!/usr/bin/env bash
echo "$(basename "$0") $* kernels=${SIMCORE_KERNELS:-auto}" >> "$LOG"
for word in ${FAIL:-}; do [[ "$*" == *"$word"* ]] && { echo "$word: no"; exit 3; }; done
for word in ${HANG:-}; do [[ "$*" == *"$word"* ]] && sleep 60; done
case "$*" in
  *get_device_capability*) echo 9.0 ;;
  *bench.gpu*) echo "wrote a file, commit ${SIMCORE_COMMIT:-}" ;;
  *gpu_smoke*) echo "stream: ok" ;;
  *pytest*) echo "${PYTEST:-7 passed in 1.0s}" ;;
  *build_ext*) touch "$LOG.built" ;;
  *build_info*) [ -n "${BUILT:-}" ] || [ -e "$LOG.built" ] || exit 1 ;;
esac
exit 0
"""


@pytest.fixture
def machine(tmp_path):
    """Return a function that starts the script on a machine of stand-ins."""
    root, toolkit = tmp_path / "root", tmp_path / "toolkit"
    (root / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "gpu_check.sh", root / "tools")
    (toolkit / "bin").mkdir(parents=True)
    (toolkit / "include").mkdir()
    (toolkit / "include" / "cuda_runtime.h").touch()
    for name in ("nvcc", "compute-sanitizer", "python"):
        program = toolkit / "bin" / name
        program.write_text(STAND_IN)
        program.chmod(0o755)
    path = f"{toolkit / 'bin'}:/usr/bin:/bin"
    log = tmp_path / "log"

    def start(part, **environment):
        out = tmp_path / "out"
        variables = {"PATH": path, "LOG": str(log), "OUT": str(out), **environment}
        command = ["bash", str(root / "tools" / "gpu_check.sh"), part, "python"]
        process = subprocess.Popen(
            command, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        process.out, process.log = out, log
        return process

    return start


def finished(process):
    """Return the exit status, the lines of the summary, and the commands that were run."""
    printed, _ = process.communicate(timeout=60)
    summary = (process.out / "summary.txt").read_text().splitlines()
    lines = [line for line in summary[1:] if not line.startswith("gpu-check")]
    steps = {line.split(": ")[0]: line.split(": ")[1].split(",")[0] for line in lines}
    return process.returncode, steps, process.log.read_text(), printed


def test_both_parts_run_all_their_steps(machine):
    status, steps, commands, _ = finished(machine("quick"))
    assert status == 0
    benchmarks = [f"bench-{name}" for name in ("cka", "grids", "composed")]
    names = ["versions", "build", "smoke", "smoke-capture", "doctor", "tests-kernels", *benchmarks]
    assert steps == dict.fromkeys(names, "ok")
    assert list(steps)[2] == "smoke"  # whether anything works is the first answer
    measured = [line for line in commands.splitlines() if "bench.gpu" in line]
    assert all("--eager" in line for line in measured)  # compilers of torch take minutes
    assert [line.split("--forms ")[1].split(" --job")[0] for line in measured] == [
        "kernel torch", "kernel composed", "composed",
    ]  # fmt: skip
    asked = [line for line in commands.splitlines() if "gpu_smoke" in line or "tests/gpu" in line]
    assert [line.split()[-1] for line in asked] == ["kernels=on"] * 3
    assert "print(json.dumps(examine(), indent=1)) kernels=auto" in commands

    status, steps, commands, _ = finished(machine("rest"))
    assert status == 0
    later = {"memcheck": "ok", "racecheck": "ok", "bench-others": "ok", "build": "not needed"}
    assert later.items() <= steps.items()
    sanitized = [line for line in commands.splitlines() if "--tool " in line]
    assert len(sanitized) == 2
    assert all(line.endswith("test_every_kernel.py kernels=on") for line in sanitized)
    assert any(line.endswith("tests/gpu kernels=off") for line in commands.splitlines())


def test_libraries_that_were_brought_along_are_used_and_need_no_toolkit(machine, tmp_path):
    (tmp_path / "toolkit" / "include" / "cuda_runtime.h").unlink()
    process = machine("quick", BUILT="1", SIMCORE_COMMIT="0123456789ab")
    status, steps, commands, _ = finished(process)
    assert status == 0
    assert steps["build"] == "not needed"
    assert "build_ext" not in commands
    assert "commit 0123456789ab" in (process.out / "steps.log").read_text()
    assert sorted(path.name for path in process.out.iterdir()) == ["steps.log", "summary.txt"]


def test_without_a_build_nothing_is_tried(machine):
    status, steps, commands, _ = finished(machine("quick", FAIL="build_ext"))
    assert status == 1
    assert steps == {"versions": "ok", "build": "failed (3)"}
    assert "tests/gpu" not in commands


@pytest.mark.deep
def test_a_failing_test_stops_no_other_step(machine):
    status, steps, _, _ = finished(machine("all", FAIL="tests/gpu gpu_smoke bench.gpu"))
    assert status == 1
    assert steps["smoke"] == steps["smoke-capture"] == "failed (3)"
    assert steps["tests-kernels"] == steps["tests-composed"] == "failed (3)"
    assert steps["bench-cka"] == steps["bench-others"] == "failed (3)"
    assert steps["doctor"] == "ok"


@pytest.mark.deep
def test_a_run_without_a_passed_test_fails(machine):
    status, _, _, printed = finished(machine("quick", PYTEST="300 skipped in 1.0s"))
    assert status == 1
    assert "no test passed in tests-kernels" in printed


@pytest.mark.deep
def test_a_refused_sanitizer_is_said_and_no_failure(machine):
    status, steps, commands, _ = finished(machine("rest", FAIL="torch.zeros"))
    assert status == 0
    assert steps["sanitizer"] == "skipped"
    assert "memcheck" not in steps
    assert "--tool memcheck" not in commands


@pytest.mark.deep
def test_a_step_that_hangs_is_ended_and_the_next_one_runs(machine):
    """The stand-in hangs for a minute."""
    begun = time.monotonic()
    status, steps, commands, _ = finished(machine("all", HANG="cka325", GPU_CHECK_SECONDS="2"))
    assert status == 1
    assert steps["bench-cka"] == steps["bench-others"] == "ended after its 2 s"
    assert steps["tests-kernels"] == steps["tests-composed"] == steps["racecheck"] == "ok"
    assert commands.index("bench.gpu") < commands.index("memcheck")
    assert time.monotonic() - begun < 40


@pytest.mark.deep
def test_a_kill_leaves_the_results_of_finished_steps(machine):
    process = machine("quick", HANG="bench.gpu")
    summary = process.out / "summary.txt"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if summary.exists() and "smoke-capture: ok" in summary.read_text():
            break
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert "build: ok" in summary.read_text()
    assert "stream: ok" in (process.out / "steps.log").read_text()


@pytest.mark.deep
def test_without_a_device_or_a_toolkit_it_says_so(machine, tmp_path):
    process = machine("quick", FAIL="get_device_capability")
    printed, _ = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "wanted a CUDA device" in printed
    (tmp_path / "toolkit" / "include" / "cuda_runtime.h").unlink()
    process = machine("quick")
    printed, _ = process.communicate(timeout=30)
    if not any(Path("/usr/local").glob("cuda*/include/cuda_runtime.h")):
        assert process.returncode == 2
        assert "wanted a CUDA toolkit" in printed
