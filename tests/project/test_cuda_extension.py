"""The library of CUDA kernels, as the wheel simcore-cuda lays it down: loaded or refused.

A library that registers nothing stands for the kernels, and torch says that it is for CUDA.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

import simcore
from simcore._kernels import cuda_extension
from support.processes import python

ROOT = Path(simcore.__file__).resolve().parents[1]
PROGRAM = """
import json, warnings, torch
torch.version.cuda = {cuda!r}
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import simcore
info = simcore.build_info()
grid = simcore.cka_grid(torch.randn(2, 9, 3))
print(json.dumps([[str(w.message) for w in said if "simcore" in str(w.message)],
                  info["cuda"], info["cuda_architectures"], list(grid.shape)]))
"""
LIBRARY = 'const char simcore_cuda_architectures[] = "8.0;9.0+PTX";'

pytestmark = pytest.mark.skipif(
    cuda_extension.LOADED is not None, reason="this build has kernels, which simcore takes first"
)


@pytest.fixture
def place(tmp_path):
    """A folder on the path of Python, as pip leaves the wheel simcore-cuda."""
    installed(tmp_path, simcore.__version__)
    (tmp_path / "simcore_cuda").mkdir()
    return tmp_path


def installed(place, version):
    (place / "simcore_cuda.dist-info").mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.4\nName: simcore-cuda\nVersion: {version}\n"
    (place / "simcore_cuda.dist-info" / "METADATA").write_text(text)


def compile_library(place, *options):
    """Compile what stands for the kernels."""
    source = place / "library.c"
    source.write_text(LIBRARY)
    subprocess.run(
        [
            *("g++", "-x", "c", "-w", "-shared", "-fPIC", source, "-x", "none", *options),
            *("-o", place / "simcore_cuda" / "libsimcore_cuda.so"),
        ],
        check=True,
    )


def imported(place, cuda="13.0"):
    """Return what importing simcore says, and what it has then."""
    path = os.pathsep.join([str(place), str(ROOT), str(ROOT / "python")])
    done = python("-c", PROGRAM.format(cuda=cuda), cwd=place, PYTHONPATH=path)
    said, *found = json.loads(done.stdout)
    return said, found


WITHOUT = [False, [], [2, 2]]


@pytest.mark.deep
def test_without_the_wheel_nothing_is_said(tmp_path):
    (tmp_path / "simcore_cuda").mkdir()  # a folder of the user
    assert imported(tmp_path) == ([], WITHOUT)


def test_kernels_that_fit_are_loaded_and_named(place):
    compile_library(place)
    assert imported(place) == ([], [True, ["8.0", "9.0+PTX"], [2, 2]])


@pytest.mark.deep
def test_kernels_of_another_version_are_not_loaded(place):
    compile_library(place)
    installed(place, "0.0.1")
    (line,), found = imported(place)
    ours = simcore.__version__
    assert line == (
        f"simcore: the CUDA kernels are not used: wanted simcore-cuda {ours}, found 0.0.1; "
        f"`make wheel-cuda` in a clone of simcore {ours} builds it; operations of torch replace "
        "them"
    )
    assert found == WITHOUT


@pytest.mark.deep
def test_kernels_without_a_version_are_not_loaded(place):
    compile_library(place)
    (place / "simcore_cuda.dist-info" / "METADATA").unlink()
    (place / "simcore_cuda.dist-info").rmdir()
    (line,), found = imported(place)
    assert "found a folder that pip did not install" in line
    assert found == WITHOUT


@pytest.mark.deep
def test_a_torch_that_is_not_for_cuda_is_named(place):
    compile_library(place)
    (line,), found = imported(place, cuda=None)
    assert line == (
        "simcore: the CUDA kernels are not used: wanted a build of torch for CUDA, found "
        f"{torch.__version__}; operations of torch replace them"
    )
    assert found == WITHOUT


@pytest.mark.deep
def test_a_runtime_of_cuda_that_is_not_there_is_named(place):
    """As a torch for another major release of CUDA has it."""
    runtime = place / "libcudart.so.99"
    subprocess.run(
        ["g++", "-x", "c", "/dev/null", "-shared", f"-Wl,-soname,{runtime.name}", "-o", runtime],
        check=True,
    )
    compile_library(place, "-Wl,--no-as-needed", str(runtime))
    runtime.unlink()
    (line,), found = imported(place)
    assert line.startswith("simcore: the CUDA kernels are not used: they cannot be loaded with ")
    assert f"torch {torch.__version__} (libcudart.so.99: cannot open shared object" in line
    assert found == WITHOUT
