"""csrc/torch compiles beside the oldest torch that pip takes, whose headers have the least.

The headers come from the wheel on the package index, and stay in the cache folder of assets.
"""

import os
import re
import runpy
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

from simlab.store.assets import cache_folder

ROOT = Path(__file__).resolve().parents[2]
# The wheel has half a gigabyte.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def setup():
    return runpy.run_path(str(ROOT / "setup.py"))


@pytest.fixture(scope="module")
def headers(setup):
    """The folder `torch/include` of the oldest release, without the rest of it."""
    folder = cache_folder() / f"torch-{setup['OLDEST']}-headers"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".headers-") as scratch:
            wheel = download(f"torch=={setup['OLDEST']}", Path(scratch))
            unpacked = Path(scratch) / "unpacked"
            with zipfile.ZipFile(wheel) as archive:
                names = [n for n in archive.namelist() if n.startswith("torch/include/")]
                archive.extractall(unpacked, names)
            os.replace(unpacked, folder)
    return folder / "torch" / "include"


def download(pinned, folder):
    """The wheel from the package index; where pip has none to give, the tests are skipped."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-cache-dir", "--no-deps"]
    done = subprocess.run(
        [*pip, "--only-binary", ":all:", "--dest", folder, pinned],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        reason = re.findall(r"^ERROR: (.*)", done.stderr, re.MULTILINE) or [done.stderr]
        pytest.skip(f"pip could not fetch {pinned}, whose headers are parsed: {reason[-1]}")
    return next(folder.glob("*.whl"))


def check(extension, headers, scratch):
    """Parse csrc/torch as a build of the extension does, and name each file that fails."""
    installed = str(Path(torch.__file__).parent / "include")
    flags = [flag.replace(installed, str(headers)) for flag in extension.extra_compile_args["cxx"]]
    assert str(headers) in flags
    flags += [f"-D{name}={value}" for name, value in extension.define_macros]
    if extension.py_limited_api:  # as torch's BuildExtension has it
        flags.append(f"-DPy_LIMITED_API={cpp_extension.min_supported_cpython}")
    folders = [*extension.include_dirs, sysconfig.get_path("include")]
    command = ["g++", *flags, *(f"-I{path}" for path in folders)]

    def fault(*arguments):
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False, cwd=ROOT
        )
        lines = [line for line in done.stderr.splitlines() if "error: " in line]
        return [lines[0] if lines else done.stderr] if done.returncode else []

    def fault_of(file):
        # The files without Python's header include tensor.h, and nothing else of torch.
        tensor = [] if '"torch/python.h"' in (ROOT / file).read_text() else ["-include", header]
        return fault("-fsyntax-only", *tensor, file)

    files = [file for file in extension.sources if file.startswith("csrc/torch/")]
    assert files
    header = scratch / "tensor.h"
    header.write_text('#include "torch/tensor.h"\n')
    found = fault("-x", "c++-header", header, "-o", scratch / "tensor.h.gch")
    with ThreadPoolExecutor(2) as pool:
        found += [line for lines in pool.map(fault_of, files) for line in lines]
    assert not found, "\n".join(found)


def test_the_operators_parse(setup, headers, tmp_path):
    check(setup["operators"](), headers, tmp_path)


def test_the_adapters_of_kernels_parse(setup, headers, tmp_path, monkeypatch):
    toolkit = setup["find_toolkit"]()
    if toolkit is None:
        pytest.skip("no CUDA toolkit, with whose headers the adapters of kernels are parsed")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(toolkit))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    check(setup["kernels"](toolkit, "simcore._cuda"), headers, tmp_path)
