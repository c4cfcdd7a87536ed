"""Where the extension is missing or does not fit, one line says why and what to do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import simcore

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
    assert f"found {torch.__version__}; `pip install torch==2.4.1` installs that torch, or" in told
    assert told.endswith("--force-reinstall --no-deps .` compiles it for this one")


def test_an_extension_that_the_loader_refuses(copy):
    extension_of(copy).write_bytes(b"no library")
    told = refusal(copy)
    assert told.startswith("ImportError: simcore: the extension was compiled for torch ")
    assert "invalid ELF header" in told or "too short" in told


def test_a_checkout_that_was_not_compiled(copy):
    told = refusal(copy)
    assert f"wanted the compiled extension in {copy}, found none" in told
