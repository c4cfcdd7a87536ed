"""setup.py: what it refuses, what it says of torch, and how it calls the compiler."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import yaml
from packaging.requirements import Requirement
from packaging.version import Version
from setuptools import Distribution, Extension
from torch.utils import cpp_extension

import simcore

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TESTED = [Version(text) for text in PYPROJECT["tool"]["simcore"]["tested-torch"]]
HIDING = """
import runpy, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == {hidden!r}:
            raise ModuleNotFoundError("no {hidden}")
sys.meta_path.insert(0, Hidden())
runpy.run_path({setup!r}, run_name="__main__")
"""
# Everything that build_ext does, up to the call of ninja.
BUILDING = """
import runpy, sys, torch
from torch.utils import cpp_extension
def stop(*arguments, **options):
    raise SystemExit("ninja would run now")
cpp_extension._run_ninja_build = stop
torch.__version__ = {version!r}
sys.argv = ["setup.py", "--quiet", "build_ext"]
runpy.run_path("setup.py", run_name="__main__")
"""


def run(program, **options):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 1
    # A torch for CUDA logs where it found nvcc.
    return [line for line in done.stderr.splitlines() if not re.match(r"[IW]\d{4} ", line)]


def line_up(folder):
    """Lay what a build reads into a folder, where it may write."""
    for name in ("setup.py", "pyproject.toml"):
        shutil.copyfile(ROOT / name, folder / name)
    for name in ("csrc", "simcore", "python", "LICENSE", "README.md"):
        (folder / name).symlink_to(ROOT / name)


@pytest.fixture(scope="module")
def building(tmp_path_factory):
    """What a build for a torch that is not out yet says, and what ninja would do."""
    folder = tmp_path_factory.mktemp("building")
    line_up(folder)
    said = run(BUILDING.format(version="2.99.0+cpu"), cwd=folder)
    (file,) = folder.glob("build/ext-*/simcore._C/build.ninja")
    return folder, said, file.read_text().split()


@pytest.mark.parametrize(
    "hidden, wanted",
    [
        ("torch", "wanted the torch to compile for, found none to import (no torch)"),
        ("setuptools.command.bdist_wheel", "wanted setuptools 77 or newer, found an older one"),
    ],
)
def test_a_build_that_lacks_something_says_what_to_type(hidden, wanted):
    (line,) = run(HIDING.format(hidden=hidden, setup=str(ROOT / "setup.py")))
    assert line.startswith(f"simcore: {wanted}")
    assert line.endswith("wheel ninja && pip install --no-build-isolation .")


def test_what_compiling_lacks_is_named_in_one_line_before_it_starts(tmp_path):
    line_up(tmp_path)
    environment = {**os.environ, "CXX": "cxx-of-nobody"}
    said = run(BUILDING.format(version=torch.__version__), cwd=tmp_path, env=environment)
    assert said == [
        "simcore: cannot compile without a C++ compiler (cxx-of-nobody is not on PATH; Debian: "
        "apt-get install g++)"
    ]


def test_a_missing_ninja_and_missing_headers_are_named(monkeypatch, tmp_path):
    setup = runpy.run_path(str(ROOT / "setup.py"))
    monkeypatch.setattr(setup["cpp_extension"], "is_ninja_available", lambda: False)
    monkeypatch.setenv("CXX", "c++ -nostdinc")
    headers = [text.format(torch=torch.__version__) for text in setup["HEADERS"].values()]
    lacked = [*headers, "ninja (pip install ninja)"]
    assert setup["missing_tools"]([str(tmp_path)]) == lacked
    for name in setup["HEADERS"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        del lacked[0]
        assert setup["missing_tools"]([str(tmp_path)]) == lacked


def test_a_compiler_that_fails_is_quoted():
    setup = runpy.run_path(str(ROOT / "setup.py"))
    (said,) = setup["missing_headers"](["c++", "-fno-such-option"])
    assert said.startswith("a compiler of C++20 (c++ failed: '")
    assert "-fno-such-option" in said


def test_a_wheel_is_for_every_python_that_simcore_takes():
    setup = runpy.run_path(str(ROOT / "setup.py"))
    extension = Extension("simcore._C", [])
    wheel = setup["Wheel"](Distribution({"ext_modules": [extension]}))
    wheel.ensure_finalized()
    oldest = PYPROJECT["project"]["requires-python"].removeprefix(">=").replace(".", "")
    assert wheel.get_tag()[:2] == (f"cp{oldest}", "abi3")
    assert Path(simcore._C.__file__).name == "_C.abi3.so"


@pytest.fixture
def toolkit(tmp_path, monkeypatch):
    """A folder with the files by which a toolkit of CUDA is known, and no nvcc elsewhere."""
    for name in ("bin/nvcc", "include/cuda_runtime_api.h", "include/cuda.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#define CUDA_VERSION 13020\n")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    return tmp_path


def test_the_wheel_of_kernels_fits_one_version_of_simcore(toolkit, monkeypatch):
    monkeypatch.setenv("SIMCORE_WHEEL", "cuda")
    wheel = runpy.run_path(str(ROOT / "setup.py"))["distribution"]()
    assert wheel["install_requires"] == [f"simcore=={simcore.__version__}", "torch>=2.11"]
    assert wheel["description"].endswith("for every torch>=2.11 for CUDA 13")
    (module,) = wheel["ext_modules"]
    assert module.name == "simcore_cuda._cuda"
    assert not {"torch_cuda", "c10_cuda"} & set(module.libraries)


@pytest.mark.parametrize("cuda", ["0", "1"])
def test_a_build_from_source_has_the_kernels_where_they_are_asked_for(toolkit, monkeypatch, cuda):
    monkeypatch.setenv("SIMCORE_CUDA", cuda)
    modules = runpy.run_path(str(ROOT / "setup.py"))["distribution"]()["ext_modules"]
    assert [module.name for module in modules] == ["simcore._C", "simcore._cuda"][: 1 + int(cuda)]


def test_kernels_without_a_toolkit_are_refused_in_one_line(toolkit, monkeypatch):
    monkeypatch.setenv("SIMCORE_CUDA", "1")
    (toolkit / "include" / "cuda_runtime_api.h").unlink()  # as beside a wrapper of nvcc
    with pytest.raises(SystemExit, match=r"wanted a CUDA toolkit .*, found none; set CUDA_HOME"):
        runpy.run_path(str(ROOT / "setup.py"))["distribution"]()


def test_no_torch_of_the_user_is_replaced():
    """A requirement with an upper bound would, as would a command with a version."""
    (requirement,) = (
        Requirement(text)
        for text in PYPROJECT["project"]["dependencies"]
        if Requirement(text).name == "torch"
    )
    assert [bound.operator for bound in requirement.specifier] == [">="]
    for page in ("README.md", "docs/start/index.md", "setup.py"):
        (command,) = re.findall(r"pip install (torch.*) wheel ninja", (ROOT / page).read_text())
        assert command == "torch 'setuptools>=77'", page


def test_every_list_has_the_tested_releases():
    assert sorted(TESTED) == TESTED
    table = (ROOT / "docs" / "develop" / "torch.md").read_text()
    assert re.findall(r"^\| (\d[\d.]+) \|", table, re.MULTILINE) == [str(v) for v in TESTED]
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert set(jobs["torch"]["strategy"]["matrix"]["version"]) >= {str(v) for v in TESTED}


def test_a_torch_that_is_newer_than_the_tested_ones_is_named_before_compiling(building):
    _, said, _ = building
    assert said == [
        f"simcore: torch 2.99.0+cpu is newer than {TESTED[-1]}, the newest that simcore was tested "
        "with; in a clone, `make test-torch VERSION=2.99.0` tests it",
        "ninja would run now",
    ]


def test_other_releases_of_torch_are_taken_or_refused():
    setup = runpy.run_path(str(ROOT / "setup.py"))
    check, oldest = setup["check_torch"], setup["OLDEST"]
    newest = TESTED[-1]
    for version in (f"{oldest}.0", *TESTED, f"{newest.major}.{newest.minor}.9+cu132"):
        assert check(str(version)) == ""
    wanted = f"simcore: wanted torch {oldest} or newer, found 2.9.1"
    with pytest.raises(SystemExit, match=f"^{re.escape(wanted)}$"):
        check("2.9.1")


def test_warnings_come_from_our_own_headers_alone(building):
    folder, _, words = building
    plain = [word.removeprefix("-I") for word in words if word.startswith("-I")]
    system = [after for word, after in pairwise(words) if word == "-isystem"]
    headers = str(Path(torch.__file__).parent / "include")
    assert str(folder / "csrc") in plain
    assert not [path for path in plain if path.startswith(headers)]
    assert headers in system
    assert {"-Wall", "-Wextra"} <= set(words)


@pytest.mark.slow
def test_a_compiler_that_links_its_runtime_statically_leaves_messages_whole(tmp_path):
    setup = runpy.run_path(str(ROOT / "setup.py"))
    objects = [str(path) for path in (ROOT / "build").glob("ext-*/simcore._C/**/*.o")]
    assert objects, "wanted the objects of `make setup` in build/, found none"
    ignored = shutil.ignore_patterns("_C.*", "__pycache__")
    package = shutil.copytree(ROOT / "simcore", tmp_path / "simcore", ignore=ignored)
    libraries = Path(torch.__file__).parent / "lib"
    subprocess.run(
        [
            *("g++", "-shared", "-static-libstdc++", *objects, *setup["LINK_FLAGS"]),
            *(f"-L{libraries}", "-lc10", "-ltorch", "-ltorch_cpu"),
            *("-o", str(package / "_C.abi3.so")),
        ],
        check=True,
    )
    call = """
import torch, simcore
layers = [torch.randn(9, 3), torch.randn(8, 3)]
try:
    torch.ops.simcore.hsic_terms(layers, [], "linear", "biased", 1.0, "auto", 0, "highest")
except ValueError as error:
    print(simcore.__file__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", call],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )
    assert done.stdout == f"{package / '__init__.py'} X[1]: wanted 9 rows, got 8\n"
