"""csrc/torch/abi.h declares the C functions of torch as torch's own headers do.

Those of the oldest torch that pip takes come from the wheel on the package index, and stay in the
cache folder of assets.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import torch

from simlab.store.assets import cache_folder

ROOT = Path(__file__).resolve().parents[2]
ABI = (ROOT / "csrc" / "torch" / "abi.h").read_text()
FUNCTIONS = re.findall(r"\b((?:aoti_)?torch_\w+)\(", ABI)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OLDEST = next(t.removeprefix("torch>=") for t in PROJECT["dependencies"] if t.startswith("torch>="))


def compared(headers, declarations=ABI, more=""):
    """What a compiler says of torch's declarations, followed by ours."""
    theirs = [f"using t_{name} = decltype({name});" for name in FUNCTIONS]
    header = "#define USE_CUDA\n#include <torch/csrc/stable/c/shim.h>"
    done = subprocess.run(
        ["g++", "-std=c++20", "-fsyntax-only", "-isystem", headers, "-x", "c++", "-"],
        input="\n".join([header, *theirs, declarations.replace("#pragma once", ""), more]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert bool(done.returncode) == bool(re.findall("error: ", done.stderr)), done.stderr
    return re.findall("error: (.*)", done.stderr)


def test_the_declarations_are_those_of_the_installed_torch():
    headers = Path(torch.__file__).parent / "include"
    assert len(FUNCTIONS) > 50
    assert not compared(headers)
    changed = ABI.replace(
        "aoti_torch_get_size(AtenTensorHandle, int64_t", "aoti_torch_get_size(int"
    )
    assert changed != ABI
    (said,) = compared(headers, changed)
    assert "aoti_torch_get_size" in said


@pytest.fixture
def headers():
    """The folder `torch/include` of the oldest release, without the rest of it."""
    folder = cache_folder() / f"torch-{OLDEST}-headers"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".headers-") as scratch:
            wheel = download(f"torch=={OLDEST}", Path(scratch))
            unpacked = Path(scratch) / "unpacked"
            with zipfile.ZipFile(wheel) as archive:
                names = [n for n in archive.namelist() if n.startswith("torch/include/")]
                archive.extractall(unpacked, names)
            os.replace(unpacked, folder)
    return folder / "torch" / "include"


def download(pinned, folder):
    """The wheel from the package index; where pip has none to give, the test is skipped."""
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


@pytest.mark.slow
@pytest.mark.timeout(3600)  # the wheel has half a gigabyte
def test_the_declarations_are_those_of_the_oldest_torch(headers):
    assert not compared(headers, more="static_assert(kTorchAbi == TORCH_ABI_VERSION);")
