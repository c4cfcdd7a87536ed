"""Builds ``simcore._C`` and ``simcore._cuda``; everything static is in pyproject.toml.

Environment: ``SIMCORE_CUDA=0|1`` forces the CUDA kernels off or on, ``SIMCORE_WHEEL=cuda`` builds
the wheel ``simcore-cuda``, which has nothing else, and ``MAX_JOBS`` bounds the number of compilers
that run at once.
"""

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable
from pathlib import Path

# A line each: what is missing, and what to type. A new virtual environment may bring a setuptools
# that is older than what pyproject.toml asks for, which pip checks in isolated builds alone. torch
# has no version here: pip then leaves alone the one that is installed.
FIRST = "pip install torch 'setuptools>=77' wheel ninja"
REMEDY = f"type: {FIRST} && pip install --no-build-isolation ."

try:
    import torch
    from torch.utils import cpp_extension
except ImportError as error:
    raise SystemExit(
        f"simcore: wanted the torch to compile for, found none to import ({error}), and without "
        f"--no-build-isolation pip hides an installed one; {REMEDY}"
    ) from None
try:
    from setuptools import Distribution, Extension, setup
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError as error:
    raise SystemExit(
        f"simcore: wanted setuptools 77 or newer, found an older one ({error}); {REMEDY}"
    ) from None

ROOT = Path(__file__).resolve().parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
OLDEST = next(
    text.removeprefix("torch>=") for text in PROJECT["dependencies"] if text.startswith("torch>=")
)
# The newest release of torch that the tests have passed with.
TESTED = PYPROJECT["tool"]["simcore"]["tested-torch"][-1]

# -ffp-contract=fast: -std=c++20 alone would forbid fused multiply-add.
# -fno-math-errno: lets sqrt and exp loops vectorise. Not -ffast-math: NaN must stay NaN.
# -g0: Python's own flags may ask for debug information, of which torch's headers have so much that
# it takes more time and most of the library's size.
CXX_FLAGS = [
    "-std=c++20",
    "-O3",
    "-g0",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
]
# Some compilers link their C++ runtime statically. Its symbols are then hidden, because half of
# them would be taken from the runtime that torch has loaded: a message with a number would crash.
LINK_FLAGS = ["-Wl,--exclude-libs,ALL"] if sys.platform == "linux" else []
# One extension for every Python from the oldest on: csrc takes of Python its limited API alone
# (csrc/torch/python.h), which a free-threaded Python does not have.
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")
# What csrc includes of others, and who brings it.
HEADERS = {
    "Python.h": "the headers of Python (Debian: apt-get install python3-dev)",
    "torch/csrc/stable/tensor.h": "the headers of torch {torch}, which some builds of it lack",
    "pybind11/detail/common.h": "the headers of pybind11, which torch's headers bring",
}
NVCC_FLAGS = ["-std=c++20", "-O3", "--expt-relaxed-constexpr"]
# Machine code for A100 and its kin and for H100 and its kin, and PTX for what comes after. The
# kernels need 8.0 at least, which torch's own choice goes below on machines without a GPU.
CUDA_ARCHITECTURES = "8.0;9.0+PTX"
FOR_CUDA = os.environ.get("SIMCORE_WHEEL", "") == "cuda"


def series(version: str) -> tuple[int, ...]:
    """Major and minor number of a release: (2, 13) of 2.13.0+cpu."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def check_torch(version: str) -> str:
    """Refuse a torch that is too old, and return a note on one that is too new to be tested."""
    if series(version) < series(OLDEST):
        raise SystemExit(f"simcore: wanted torch {OLDEST} or newer, found {version}")
    if series(version) <= series(TESTED):
        return ""
    return (
        f"simcore: torch {version} is newer than {TESTED}, the newest that simcore was tested "
        f"with; in a clone, `make test-torch VERSION={version.partition('+')[0]}` tests it"
    )


def missing_tools(includes: list[str]) -> list[str]:
    """What compiling needs and this machine lacks: a compiler, ninja, headers."""
    missing = []
    compiler = shlex.split(cpp_extension.get_cxx_compiler())
    if shutil.which(compiler[0]) is None:
        missing.append(
            f"a C++ compiler ({compiler[0]} is not on PATH; Debian: apt-get install g++)"
        )
    else:
        missing += missing_headers([*compiler, *(f"-I{path}" for path in includes)])
    if not cpp_extension.is_ninja_available():
        missing.append("ninja (pip install ninja)")
    return missing


def missing_headers(compiler: list[str]) -> list[str]:
    """Which of HEADERS the compiler does not find; it alone knows where it looks by itself."""
    lines = [f"#if !__has_include(<{name}>)\nlacks {name}\n#endif" for name in HEADERS]
    asked = subprocess.run(
        [*compiler, CXX_FLAGS[0], "-E", "-P", "-x", "c++", "-"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode != 0:
        said = asked.stderr.strip().partition("\n")[0]
        return [f"a compiler of C++20 ({compiler[0]} failed: '{said}')"]
    names = re.findall(r"^lacks (.*)$", asked.stdout, re.MULTILINE)
    return [HEADERS[name].format(torch=torch.__version__) for name in names]


def sources(folder: str, suffix: str) -> list[str]:
    """Sources under csrc/folder, relative to the root and in a fixed order."""
    return sorted(str(p.relative_to(ROOT)) for p in (ROOT / "csrc" / folder).rglob(f"*{suffix}"))


def find_toolkit() -> Path | None:
    """A CUDA toolkit with compiler and headers; a wrapper of nvcc on PATH has none beside it."""
    named, nvcc = os.environ.get("CUDA_HOME"), shutil.which("nvcc")
    beside = Path(nvcc).resolve().parents[1] if nvcc else None
    places = [named] if named else [cpp_extension.CUDA_HOME, beside, "/usr/local/cuda"]
    for place in map(Path, filter(None, places)):
        if (place / "bin/nvcc").exists() and (place / "include/cuda_runtime_api.h").exists():
            return place
    return None


def cuda_toolkit() -> Path | None:
    """The toolkit to build csrc/cuda with; never asks for a GPU, since the builder often has none.

    A torch for CPUs compiles the kernels too, and has no use for them, so that SIMCORE_CUDA=1 has
    to ask for them. torch's BuildExtension refuses nvcc of another major release than its CUDA.
    """
    choice = os.environ.get("SIMCORE_CUDA", "1" if FOR_CUDA else "")
    if choice not in ("", "0", "1"):
        raise SystemExit(f"SIMCORE_CUDA must be 0, 1 or unset, got {choice!r}")
    if choice == "0" or (choice == "" and torch.version.cuda is None):
        return None
    toolkit = find_toolkit()
    if toolkit is None and choice == "1":
        raise SystemExit(
            "simcore: wanted a CUDA toolkit (bin/nvcc and include/cuda_runtime_api.h) for the CUDA "
            "kernels, found none; set CUDA_HOME or PATH"
        )
    return toolkit


def extension(
    kind: Callable[..., Extension], name: str, files: list[str], macros: dict[str, str]
) -> Extension:
    """An extension that runs with every torch from OLDEST on, because of torch's stable ABI."""
    major, minor = series(OLDEST)
    macros["TORCH_TARGET_VERSION"] = f"0x{major:02x}{minor:02x}000000000000"
    module = kind(
        name,
        files,
        define_macros=list(macros.items()),
        extra_compile_args={"cxx": list(CXX_FLAGS), "nvcc": list(NVCC_FLAGS)},
        extra_link_args=list(LINK_FLAGS),
        py_limited_api=LIMITED,
    )
    # Headers of torch and of CUDA as the system's, whose warnings compilers do not print: -Wextra
    # is for csrc.
    for options in module.extra_compile_args.values():
        options += [part for path in module.include_dirs for part in ("-isystem", path)]
    module.include_dirs = [str(ROOT / "csrc")]
    return module


def operators() -> Extension:
    """`simcore._C`: the operators, and their kernels for CPUs."""
    adapters = [file for file in sources("torch", ".cpp") if not file.endswith("_cuda.cpp")]
    # simcore.build_info() reports these.
    record = {
        "SIMCORE_VERSION": f'"{PROJECT["version"]}"',
        "SIMCORE_BUILD_FLAGS": f'"{" ".join(CXX_FLAGS)}"',
    }
    files = sources("cpu", ".cpp") + adapters
    return extension(cpp_extension.CppExtension, "simcore._C", files, record)


def kernels(toolkit: Path, name: str) -> Extension:
    """The kernels for GPUs, and the checks that they share with those for CPUs."""
    shared = ("checks.cpp", "convert.cpp", "errors.cpp")
    files = [file for file in sources("torch", ".cpp") if file.endswith(("_cuda.cpp", *shared))]
    cpp_extension.CUDA_HOME = str(toolkit)  # torch looks for none where it is no CUDA build
    architectures = os.environ.setdefault("TORCH_CUDA_ARCH_LIST", CUDA_ARCHITECTURES)
    record = {
        "SIMCORE_CUDA_ARCHITECTURES": f'"{architectures.replace(" ", ";")}"',
        "USE_CUDA": "1",  # declares what torch has for streams
    }
    files += sources("cuda", ".cu")
    module = extension(cpp_extension.CUDAExtension, name, files, record)
    # libtorch, which brings the library of CUDA where torch has one, so that a torch without one
    # will do here. Nothing is called in it: some linkers would leave it out.
    module.libraries = [n for n in module.libraries if n not in ("torch", "torch_cuda", "c10_cuda")]
    module.extra_link_args += ["-Wl,--no-as-needed", "-ltorch"]
    return module


class BuildExtension(cpp_extension.BuildExtension):
    """Keeps objects in one folder: pip's own is temporary, so each install would start afresh."""

    def build_extension(self, ext: Extension) -> None:
        """Use build/ext-<python>/<extension>: extensions share sources, and differ in flags."""
        self.build_temp = str(Path("build", f"ext-{sys.implementation.cache_tag}", ext.name))
        super().build_extension(ext)

    def run(self) -> None:
        """Check torch and the tools before anything is compiled."""
        if note := check_torch(torch.__version__):
            print(note, file=sys.stderr, flush=True)
        headers = [sysconfig.get_path("include"), *cpp_extension.include_paths()]
        if missing := missing_tools(headers):
            raise SystemExit(f"simcore: cannot compile without {', and without '.join(missing)}")
        super().run()
        if self.inplace and len(self.extensions) == 1:  # kernels of an earlier build
            for left in (ROOT / "simcore").glob("_cuda.*"):
                left.unlink()


class Wheel(bdist_wheel):
    """Names in the wheel's tag the oldest Python, and the C library of this machine.

    An older C library may lack symbols.
    """

    def finalize_options(self) -> None:
        """Say that newer Pythons take the wheel too."""
        if LIMITED:
            self.py_limited_api = "cp" + "".join(re.findall(r"\d+", PROJECT["requires-python"]))
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of Python, ABI and platform."""
        python, abi, where = super().get_tag()
        library, version = platform.libc_ver()
        if library == "glibc" and where.startswith("linux_"):
            where = f"manylinux_{version.replace('.', '_')}_{where.removeprefix('linux_')}"
        return python, abi, where


class CudaDistribution(Distribution):
    """The wheel simcore-cuda, of which pyproject.toml says nothing."""

    def parse_config_files(self, *_: object, **__: object) -> None:
        """Read no pyproject.toml: it describes simcore."""


def distribution() -> dict[str, object]:
    """What `setup` is given: simcore, or with SIMCORE_WHEEL=cuda the wheel of CUDA kernels."""
    toolkit = cuda_toolkit()
    if not FOR_CUDA:
        found = [kernels(toolkit, "simcore._cuda")] if toolkit else []
        return {"ext_modules": [operators(), *found]}
    assert toolkit is not None  # `cuda_toolkit` refuses a machine without one
    headers = (toolkit / "include" / "cuda.h").read_text()
    release = int(re.findall(r"#define CUDA_VERSION (\d+)", headers)[0]) // 1000
    torch_wanted = next(text for text in PROJECT["dependencies"] if text.startswith("torch>="))
    return {
        "name": "simcore-cuda",
        "version": PROJECT["version"],
        "description": f"CUDA kernels of simcore, for every {torch_wanted} for CUDA {release}",
        "license": PROJECT["license"],
        "license_files": PROJECT["license-files"],
        "python_requires": PROJECT["requires-python"],
        "install_requires": [f"simcore=={PROJECT['version']}", torch_wanted],
        "packages": [],
        "ext_modules": [kernels(toolkit, "simcore_cuda._cuda")],
        "distclass": CudaDistribution,
    }


if __name__ == "__main__":
    # pip of a virtual environment that is not activated leaves its bin/ (ninja) off PATH.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    setup(cmdclass={"build_ext": BuildExtension, "bdist_wheel": Wheel}, **distribution())
