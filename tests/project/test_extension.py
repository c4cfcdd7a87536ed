"""Where the extension is missing or does not fit, one line says why and what to do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import simcore
from simcore import _extension

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


@pytest.mark.parametrize("wanted", ["==2.4.1", ">=99.1"])
def test_another_torch_is_named_with_the_one_it_was_built_for(copy, wanted):
    extension_of(copy).symlink_to(next(PACKAGE.glob("_C.*.so")))
    (copy / "_C_torch.txt").write_text(f"{wanted}\n")
    told = refusal(copy)
    assert told.startswith(f"ImportError: simcore: wanted torch{wanted}, which the extension was")
    assert f"found {torch.__version__}; `pip install 'torch{wanted}'` installs that torch" in told
    assert told.endswith("--force-reinstall --no-deps .` compiles it for this one")


@pytest.mark.parametrize("version", ["2.11.0", "2.11.0+cu130", "2.13.0a0+git1234", "3.0.0"])
def test_a_build_without_kernels_takes_every_later_torch(version):
    assert _extension._fits(version, ">=2.11")
    assert not _extension._fits("2.10.2+cpu", ">=2.11")


def test_a_build_with_kernels_takes_one_torch():
    assert _extension._fits("2.13.0+cu130", "==2.13.0")
    assert not _extension._fits("2.13.1+cu130", "==2.13.0")


def test_the_record_beside_the_extension():
    """Builds with CUDA kernels fit one torch, and all others what pyproject.toml asks for."""
    wanted = (PACKAGE / "_C_torch.txt").read_text().strip()
    with_kernels = simcore.build_info()["cuda"]
    release = torch.__version__.partition("+")[0]
    assert wanted == (f"=={release}" if with_kernels else ">=2.11")


def test_an_extension_that_the_loader_refuses(copy):
    extension_of(copy).write_bytes(b"no library")
    told = refusal(copy)
    assert told.startswith("ImportError: simcore: the extension, compiled for torch")
    assert "invalid ELF header" in told or "too short" in told


def test_a_checkout_that_was_not_compiled(copy):
    told = refusal(copy)
    assert f"wanted the compiled extension in {copy}, found none" in told
