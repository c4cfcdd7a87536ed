"""The command where packages are missing: one line says what to install, and the exit code is 2.

Each test starts the entry point of pyproject.toml in a process that hides some packages.
"""

import tomllib
from pathlib import Path

import pytest

from simcore._optional import install_command
from support.processes import python

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
    return python("-c", program, ok=False)


def test_a_line_installs_the_packages_of_the_command(tmp_path):
    out = tmp_path / "out"
    done = run("sklearn transformers", "extract", "minilm", "rt", "--out", str(out))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: the command simcore wanted the package transformers, found none; "
        f"`{install_command('lab')}` installs all that it needs"
    ]
    assert not out.exists()


@pytest.mark.deep
@pytest.mark.parametrize("pure", ["0", "1"])
def test_the_line_is_the_only_one_with_and_without_a_compiler(monkeypatch, pure):
    monkeypatch.setenv("SIMCORE_PURE", pure)
    done = run(LAB, "--help")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: the command simcore wanted the package typer, found none")


@pytest.mark.deep
def test_a_line_installs_the_packages_of_a_name_of_simlab():
    with_hidden = PROGRAM.format(hidden=["pydantic"], arguments=(), script=SCRIPT)
    program = with_hidden.partition('EntryPoint("')[0] + "from simlab import Sweep"
    done = python("-c", program, ok=False)
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


@pytest.mark.deep
def test_a_module_of_our_own_that_is_missing_is_a_bug():
    done = run("simlab.errors")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.mark.deep
def test_with_all_packages_it_starts():
    done = run("", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "finetune" in done.stdout
