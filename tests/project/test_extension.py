"""Where the extension cannot be built, or does not fit, one line says why and what to do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import simcore

SETUP = Path(__file__).resolve().parents[2] / "setup.py"
PACKAGE = Path(simcore.__file__).parent
# Without the finder of an editable installation, which knows the extension of the checkout.
ALONE = """
import sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
import simcore
"""


@pytest.fixture
def copy(tmp_path):
    """A copy of the package without its extension."""
    ignored = shutil.ignore_patterns("_C.*", "__pycache__", "reference")
    return shutil.copytree(PACKAGE, tmp_path / "simcore", ignore=ignored)


def refusal(copy):
    """Return what importing the copy says."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(copy.parent)},
        cwd=copy.parent,
    )
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def extension_of(copy):
    (found,) = PACKAGE.glob("_C.*.so")
    return copy / found.name


def test_another_torch_is_named_with_the_one_it_was_built_for(copy):
    extension_of(copy).symlink_to(next(PACKAGE.glob("_C.*.so")))
    (copy / "_C_torch.txt").write_text("2.4.1+cu121\n")
    told = refusal(copy)
    assert told.startswith("ImportError: simcore: wanted torch 2.4.1+cu121, which it was compiled")
    assert f"found {torch.__version__}; install that torch, or compile simcore again: pip" in told


def test_an_extension_that_the_loader_refuses(copy):
    extension_of(copy).write_bytes(b"no library")
    told = refusal(copy)
    assert told.startswith("ImportError: simcore: the extension was compiled for torch ")
    assert "invalid ELF header" in told or "too short" in told


def test_a_checkout_that_was_not_compiled(copy):
    told = refusal(copy)
    assert f"wanted the compiled extension in {copy}, found none" in told


@pytest.mark.parametrize(
    "hidden, wanted",
    [
        ("torch", "wanted the torch to compile for, found none to import (no torch)"),
        ("setuptools.command.bdist_wheel", "wanted setuptools 77 or newer, found an older one"),
    ],
)
def test_a_build_that_lacks_something_says_what_to_type(hidden, wanted):
    program = f"""
import runpy, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == {hidden!r}:
            raise ModuleNotFoundError("no {hidden}")
sys.meta_path.insert(0, Hidden())
runpy.run_path({str(SETUP)!r}, run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"simcore: {wanted}")
    assert line.endswith("wheel ninja && pip install --no-build-isolation .")
