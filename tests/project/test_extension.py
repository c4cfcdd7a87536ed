"""Where the extension is missing or does not fit, one line says why and what to do."""

import shutil
from pathlib import Path

import pytest
import torch

import simcore
from simcore import _extension
from support.processes import python

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
    ignored = shutil.ignore_patterns("_C.*", "libsimcore*", "__pycache__", "reference")
    return shutil.copytree(PACKAGE, tmp_path / "simcore", ignore=ignored)


def imported(copy):
    """Import the copy in a process of its own."""
    return python("-c", ALONE, ok=False, cwd=copy.parent, PYTHONPATH=str(copy.parent))


def refusal(copy):
    """Return what importing the copy says."""
    done = imported(copy)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def extension_of(copy):
    (found,) = PACKAGE.glob("_C.*.so")
    return copy / found.name


@pytest.mark.deep
def test_a_torch_that_is_too_old_is_named_with_what_installs_another(copy):
    extension_of(copy).symlink_to(next(PACKAGE.glob("_C.*.so")))
    record = copy.parent / "simcore.dist-info" / "METADATA"
    record.parent.mkdir()
    record.write_text("Name: simcore\nVersion: 0.2.0\nRequires-Dist: torch>=99.1\n")
    assert refusal(copy) == (
        f"ImportError: simcore: wanted torch>=99.1, found {torch.__version__}; "
        "`pip install 'torch>=99.1'` installs it"
    )


@pytest.mark.parametrize("version", ["2.11.0", "2.11.0+cu130", "2.13.0a0+git1234", "3.0.0"])
def test_an_extension_takes_every_later_torch(version):
    assert _extension._series(version) >= _extension._series("torch>=2.11")
    assert _extension._series("2.10.2+cpu") < _extension._series("torch>=2.11")


@pytest.mark.deep
def test_an_extension_that_the_loader_refuses(copy):
    extension_of(copy).write_bytes(b"no library")
    told = refusal(copy)
    assert told.startswith(
        "ImportError: simcore: the extension, compiled for torch>=2.11, cannot be"
    )
    assert "invalid ELF header" in told or "too short" in told


@pytest.mark.parametrize(
    "other", [pytest.param("", marks=pytest.mark.deep), "_C.cpython-39-x86_64-linux-gnu.so"]
)
def test_without_an_extension_for_this_python_torch_computes(copy, other):
    if other:
        (copy / other).touch()
    done = imported(copy)
    assert done.returncode == 0
    (line,) = (line for line in done.stderr.splitlines() if "simcore: " in line)
    found = f"{other}, which is for another Python" if other else "none"
    assert "computing with torch's operations" in line
    assert f"wanted operators compiled for this Python, found {found}; in a clone, `SIMC" in line


def test_files_that_are_not_installed(copy):
    """`-S` keeps site-packages, with the metadata of simcore, off the path."""
    place = copy.parent
    done = python("-S", "-c", "import simcore", ok=False, cwd=place, PYTHONPATH=str(place))
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith("ImportError: simcore: wanted an installed simcore, found the files of ")
    assert "pip install" in line
