"""Commands of Slurm that run on this machine whatever they are given.

``sbatch`` starts each task of an array at once in a process of its own, and ``sacct`` and
``scancel`` know these processes. Their state lies in a folder: the script, options and node of each
job, and a file with the state of each task.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

NO_SUBMITIT = "the package submitit is not installed"
STATE = "FAKE_SLURM"
COMMANDS = ("sbatch", "srun", "sacct", "scancel")


def find_submitit() -> bool:
    """Return whether submitit is installed."""
    return importlib.util.find_spec("submitit") is not None


class FakeSlurm:
    """The commands, first in the PATH, and the jobs that they were given."""

    def __init__(self, folder: Path, monkeypatch) -> None:
        self.folder = folder
        (folder / "bin").mkdir(parents=True)
        for name in COMMANDS:
            command = folder / "bin" / name
            command.write_text(
                f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(__file__)} {name} "
                '"$@"\n'
            )
            command.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        monkeypatch.setenv(STATE, str(folder))

    def scripts(self) -> list[str]:
        """Return the scripts that were submitted."""
        return [file.read_text() for file in sorted(self.folder.glob("*.script"))]

    def states(self) -> dict[str, str]:
        """Return the state of every task."""
        return {file.stem: file.read_text() for file in sorted(self.folder.glob("*.state"))}

    def kill(self) -> None:
        """End all tasks that run."""
        for file in self.folder.glob("*.pid"):
            _end(int(file.read_text()))


def _end(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _sbatch(folder: Path, script: Path) -> None:
    """Start the tasks of a script."""
    refused = folder / "refuse"
    if refused.exists():
        sys.exit(refused.read_text())
    number = len(list(folder.glob("*.script"))) + 1
    text = script.read_text()
    (folder / f"{number}.script").write_text(text)
    array = next((line for line in text.splitlines() if "--array=" in line), None)
    last = None if array is None else int(array.partition("=0-")[2].partition("%")[0])
    for task in [None] if last is None else range(last + 1):
        name = str(number) if task is None else f"{number}_{task}"
        command = [sys.executable, __file__, "task", name, str(folder / f"{number}.script")]
        process = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        (folder / f"{name}.pid").write_text(str(process.pid))
    print(f"Submitted batch job {number}")


def _task(folder: Path, name: str, script: Path) -> None:
    """Run the script of a task to its end."""
    state = folder / f"{name}.state"
    state.write_text("RUNNING")
    array, _, task = name.partition("_")
    variables = {"SLURM_JOB_ID": name, "SLURM_NTASKS": "1", "SLURM_JOB_NUM_NODES": "1"}
    variables |= {"SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    if task:
        variables |= {"SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": task}
    code = subprocess.run(["bash", str(script)], env=os.environ | variables, check=False).returncode
    state.write_text("COMPLETED" if code == 0 else "FAILED")


def _srun(arguments: list[str]) -> None:
    """Run a command, and write what it prints to the file of ``--output``."""
    output = None
    while arguments[0].startswith("--"):
        option = arguments.pop(0)
        if option in ("--output", "--error"):
            output = arguments.pop(0) if option == "--output" else output
    names = {"%A": "SLURM_ARRAY_JOB_ID", "%a": "SLURM_ARRAY_TASK_ID", "%j": "SLURM_JOB_ID"}
    for mark, name in names.items():
        output = output.replace(mark, os.environ.get(name, ""))
    with Path(output.replace("%t", "0")).open("ab") as stream:
        done = subprocess.run(arguments, stdout=stream, stderr=stream, check=False)
    sys.exit(1 if done.returncode else 0)


def _sacct(folder: Path) -> None:
    print("JobID|State|NodeList")
    for file in folder.glob("*.pid"):
        state = folder / f"{file.stem}.state"
        print(f"{file.stem}|{state.read_text() if state.exists() else 'PENDING'}|here")


def _scancel(folder: Path, name: str) -> None:
    (folder / f"{name}.state").write_text("CANCELLED by 0")
    _end(int((folder / f"{name}.pid").read_text()))


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    place = Path(os.environ[STATE])
    if what == "sbatch":
        _sbatch(place, Path(rest[0]))
    elif what == "task":
        _task(place, rest[0], Path(rest[1]))
    elif what == "srun":
        _srun(rest)
    elif what == "sacct":
        _sacct(place)
    else:
        _scancel(place, rest[0])
