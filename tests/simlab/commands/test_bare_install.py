"""The command where packages are missing: one line says what to install, and the exit code is 2.

Each test starts the entry point of pyproject.toml in a process that hides some packages.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from simcore._optional import install_command

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["simcore"]
LAB = "typer pydantic rich pandas pyarrow matplotlib transformers datasets tokenizers h5py jinja2"
PROGRAM = """
import sys
from importlib.metadata import EntryPoint

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
sys.argv = ["simcore", *{arguments!r}]
EntryPoint("simcore", {script!r}, "console_scripts").load()()
"""


def run(hidden, *arguments):
    program = PROGRAM.format(hidden=hidden.split(), arguments=arguments, script=SCRIPT)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "hidden, first, arguments",
    [
        (LAB, "typer", ("--help",)),
        ("sklearn transformers", "transformers", ("extract", "minilm", "rt", "--out", "{folder}")),
    ],
)
def test_a_line_installs_the_packages_of_the_command(tmp_path, hidden, first, arguments):
    done = run(hidden, *(part.format(folder=tmp_path / "out") for part in arguments))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: the command simcore wanted the package {first}, found none; "
        f"`{install_command('lab')}` installs all that it needs"
    ]
    assert list(tmp_path.iterdir()) == []


def test_without_a_compiler_the_line_is_the_only_one(monkeypatch):
    monkeypatch.setenv("SIMCORE_PURE", "1")
    done = run(LAB)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: the command simcore wanted the package typer, found none")


def test_a_line_installs_the_packages_of_a_name_of_simlab():
    with_hidden = PROGRAM.format(hidden=["pydantic"], arguments=(), script=SCRIPT)
    program = with_hidden.partition('EntryPoint("')[0] + "from simlab import Sweep"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: simlab.Sweep wanted the package pydantic, found none; "
        f"`{install_command('lab')}` installs all that it needs"
    )


def test_without_torch_the_least_one_that_fits_is_named():
    done = run("typer torch")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: simcore: wanted torch, found none; `pip install 'torch>=")


def test_a_module_of_our_own_that_is_missing_is_a_bug():
    done = run("simlab.errors")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_with_all_packages_it_starts():
    done = run("", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "finetune" in done.stdout
