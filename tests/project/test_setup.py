"""setup.py: what it refuses, and how it calls the compiler."""

import re
import runpy
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
import torch
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import simcore
from support.processes import python

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TESTED = [Version(text) for text in PYPROJECT["tool"]["simcore"]["tested-torch"]]
# Everything that build_ext does up to the call of ninja, without torch.
BUILDING = """
import runpy, subprocess, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("no torch")
sys.meta_path.insert(0, Hidden())
asked = subprocess.run
def stop(command, **options):
    if command[0] == "ninja":
        raise SystemExit("ninja would run now")
    return asked(command, **options)
subprocess.run = stop
sys.argv = ["setup.py", "--quiet", "build_ext"]
runpy.run_path("setup.py", run_name="__main__")
"""


def build(folder, **environment):
    """Lay what a build reads into a folder, where it may write, and return what it says."""
    for name in ("setup.py", "pyproject.toml"):
        shutil.copyfile(ROOT / name, folder / name)
    for name in ("csrc", "simcore", "python", "LICENSE", "README.md"):
        (folder / name).symlink_to(ROOT / name)
    chosen = {"SIMCORE_CUDA": "0", "SIMCORE_PURE": "0", **environment}
    done = python("-c", BUILDING, ok=False, cwd=folder, **chosen)
    assert done.returncode == 1
    return done.stderr.splitlines()


def test_a_build_needs_no_torch(tmp_path):
    assert build(tmp_path) == ["ninja would run now"]
    words = (tmp_path / "build" / "objects" / "build.ninja").read_text().split()
    assert {"build/objects/units/csrc/torch.cpp", "csrc/cpu/isa/avx2.cpp"} <= set(words)
    unit = (tmp_path / "build" / "objects" / "units" / "csrc" / "torch.cpp").read_text()
    assert '#include "torch/hsic_cpu.cpp"' in unit
    assert "hsic_cuda" not in unit
    assert {"-Icsrc", "-Wall", "-Wextra"} <= set(words)
    assert not [word for word in words if "site-packages/torch" in word]


@pytest.mark.parametrize(
    "compiler, said",
    [
        (
            "cxx-of-nobody",
            "a C++ compiler (cxx-of-nobody is not on PATH; Debian: apt-get install g++)",
        ),
        ("c++ -nostdinc", "a compiler of C++20 (c++ failed: '<stdin>:1:10: fatal error: span: No"),
    ],
)
def test_what_compiling_lacks_is_named_in_one_line_before_it_starts(tmp_path, compiler, said):
    (line,) = build(tmp_path, CXX=compiler)
    assert line.startswith(f"simcore: cannot compile without {said}")


@pytest.mark.parametrize(
    "choice, compiler, compiled", [("", "c++", 2), ("", "cxx-of-nobody", 0), ("1", "c++", 0)]
)
def test_without_a_compiler_python_alone_is_installed(monkeypatch, choice, compiler, compiled):
    for name, value in (("PURE", choice), ("CUDA", "0"), ("WHEEL", "")):
        monkeypatch.setenv(f"SIMCORE_{name}", value)
    monkeypatch.setenv("CXX", compiler)
    distribution = runpy.run_path(str(ROOT / "setup.py"))["distribution"]()
    assert len(distribution.get("ext_modules", [])) == compiled


@pytest.mark.slow
def test_the_wheel_without_compiled_code_fits_every_machine(tmp_path):
    """It is what an index has where no other wheel fits."""
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    for name in ("simcore", "python"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    build = ("wheel", "-q", "--no-deps", "--no-build-isolation", ".")
    python("-m", "pip", *build, cwd=tmp_path, SIMCORE_PURE="1")
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"simcore-{simcore.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    assert "simcore/_pure.py" in names
    assert not [name for name in names if name.endswith((".so", ".cpp", ".h"))]


def test_a_missing_ninja_and_missing_headers_are_named(monkeypatch, tmp_path):
    setup = runpy.run_path(str(ROOT / "setup.py"))
    monkeypatch.setattr(setup["sysconfig"], "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(setup["shutil"], "which", lambda name: name != "ninja" or None)
    lacked = setup["missing_tools"](["c++"])
    assert lacked == [
        "ninja (pip install ninja)",
        "the headers of Python (Debian: apt-get install python3-dev)",
    ]
    (tmp_path / "Python.h").touch()
    assert setup["missing_tools"](["c++"]) == lacked[:1]


def test_the_operators_know_neither_python_nor_more_of_torch_than_they_declare():
    library = Path(simcore.__file__).parent / "libsimcore.so"
    asked = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True)
    names = re.findall(r" U (\w+)", asked.stdout)
    assert [name for name in names if "torch" in name]
    assert not [name for name in names if name.startswith(("Py", "_Py", "_ZN2at", "_ZN3c10"))]


@pytest.fixture
def toolkit(tmp_path, monkeypatch):
    """A folder with the files by which a toolkit of CUDA is known, and no nvcc elsewhere."""
    for name in ("bin/nvcc", "include/cuda_runtime_api.h", "include/cuda.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#define CUDA_VERSION 13020\n")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    return tmp_path


def test_the_wheel_of_kernels_fits_one_version_of_simcore(toolkit, monkeypatch):
    monkeypatch.setenv("SIMCORE_WHEEL", "cuda")
    wheel = runpy.run_path(str(ROOT / "setup.py"))["distribution"]()
    assert wheel["install_requires"] == [f"simcore=={simcore.__version__}", "torch>=2.11"]
    assert wheel["description"].endswith("for every torch>=2.11 for CUDA 13")
    (module,) = wheel["ext_modules"]
    assert module.name == "simcore_cuda.libsimcore_cuda"


@pytest.mark.parametrize("cuda", ["0", "1"])
def test_a_build_from_source_has_the_kernels_where_they_are_asked_for(toolkit, monkeypatch, cuda):
    monkeypatch.setenv("SIMCORE_CUDA", cuda)
    modules = runpy.run_path(str(ROOT / "setup.py"))["distribution"]()["ext_modules"]
    names = ["simcore.libsimcore", "simcore._C", "simcore.libsimcore_cuda"]
    assert [module.name for module in modules] == names[: 2 + int(cuda)]


def test_kernels_without_a_toolkit_are_refused_in_one_line(toolkit, monkeypatch):
    monkeypatch.setenv("SIMCORE_CUDA", "1")
    (toolkit / "include" / "cuda_runtime_api.h").unlink()  # as beside a wrapper of nvcc
    with pytest.raises(SystemExit, match=r"wanted a CUDA toolkit .*, found none; set CUDA_HOME"):
        runpy.run_path(str(ROOT / "setup.py"))["distribution"]()


def test_the_compile_gate_has_the_macros_and_flags_of_a_build(toolkit):
    """Flags for the host's compiler are its own: it does not optimise, and warnings are errors."""
    setup = runpy.run_path(str(ROOT / "setup.py"))
    flags = set(re.split(r"[\s\"()]+", (ROOT / "cmake" / "cuda_gate.cmake").read_text()))
    wanted = [flag for flag in setup["NVCC_FLAGS"] if flag.startswith(("-O", "--"))]
    wanted += setup["code_of"]("8.0;9.0")
    wanted += [f"{name}=\\" for name, _ in setup["kernels"](toolkit, "simcore").define_macros]
    assert not [flag for flag in wanted if flag not in flags]
    assert setup["CUDA_ARCHITECTURES"] == "8.0;9.0+PTX"


def test_no_torch_of_the_user_is_replaced():
    """A requirement with an upper bound would."""
    (requirement,) = (
        Requirement(text)
        for text in PYPROJECT["project"]["dependencies"]
        if Requirement(text).name == "torch"
    )
    assert [bound.operator for bound in requirement.specifier] == [">="]


def test_every_list_has_the_tested_releases():
    assert sorted(TESTED) == TESTED
    table = (ROOT / "docs" / "develop" / "torch.md").read_text()
    assert re.findall(r"^\| (\d[\d.]+) \|", table, re.MULTILINE) == [str(v) for v in TESTED]
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert set(jobs["torch"]["strategy"]["matrix"]["version"]) >= {str(v) for v in TESTED}


@pytest.mark.slow
def test_a_compiler_that_links_its_runtime_statically_leaves_messages_whole(tmp_path):
    setup = runpy.run_path(str(ROOT / "setup.py"))
    ninja = (ROOT / "build" / "objects" / "build.ninja").read_text()
    (inputs,) = re.findall(r"^build \S+libsimcore\.so: library (.*)", ninja, re.MULTILINE)
    objects = [str(ROOT / name) for name in inputs.split() if name.endswith(".o")]
    ignored = shutil.ignore_patterns("libsimcore*", "__pycache__")
    package = shutil.copytree(ROOT / "simcore", tmp_path / "simcore", ignore=ignored)
    subprocess.run(
        [
            *("g++", "-shared", "-static-libstdc++", *objects, *setup["LINK_FLAGS"]),
            *(f"-L{Path(torch.__file__).parent / 'lib'}", "-ltorch_cpu"),
            *("-Wl,-soname,libsimcore.so", "-o", str(package / "libsimcore.so")),
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
    done = python("-c", call, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.stdout == f"{package / '__init__.py'} X[1]: wanted 9 rows, got 8\n"
