"""Builds the extension ``simcore._C``; everything static is in pyproject.toml.

Environment: ``SIMCORE_CUDA=0|1`` forces the CUDA kernels off or on, ``MAX_JOBS``
bounds the number of compilers that run at once.
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
    from setuptools import setup
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


def find_nvcc() -> str | None:
    """The nvcc that torch's build helper would call, else the one on PATH."""
    home = cpp_extension.CUDA_HOME
    beside = Path(home, "bin", "nvcc") if home else None
    return str(beside) if beside and beside.exists() else shutil.which("nvcc")


def has_cuda_headers() -> bool:
    """Whether a compiler would find the headers: a wrapper of nvcc on PATH may have none beside."""
    folders = cpp_extension.include_paths(device_type="cuda")
    return any(Path(folder, "cuda_runtime_api.h").exists() for folder in folders)


def decide_cuda() -> bool:
    """Whether to build csrc/cuda; never asks for a GPU, since the builder often has none."""
    choice = os.environ.get("SIMCORE_CUDA", "")
    if choice not in ("", "0", "1"):
        raise SystemExit(f"SIMCORE_CUDA must be 0, 1 or unset, got {choice!r}")
    if choice == "0":
        return False
    missing = []
    if not sources("cuda", ".cu"):
        missing.append("csrc/cuda holds no .cu files")
    if torch.version.cuda is None:
        missing.append(f"torch {torch.__version__} is not a CUDA build")
    if find_nvcc() is None:
        missing.append("nvcc was not found (set CUDA_HOME or PATH)")
    elif cpp_extension.CUDA_HOME and not has_cuda_headers():
        missing.append(f"{cpp_extension.CUDA_HOME} has no headers of CUDA (set CUDA_HOME)")
    if missing and choice == "1":
        raise SystemExit(
            "SIMCORE_CUDA=1, but the CUDA kernels cannot be built: " + "; ".join(missing)
        )
    return not missing


def extension() -> object:
    """The one extension module, CPU only or with CUDA.

    Without CUDA it takes what torch's stable ABI has, and runs with every torch from OLDEST on. The
    adapters of CUDA kernels ask c10 for streams and memory, and fit the torch beside them.
    """
    with_cuda = decide_cuda()
    major, minor = series(OLDEST)
    adapters = sources("torch", ".cpp")
    flags = {"cxx": list(CXX_FLAGS)}
    kind = cpp_extension.CppExtension
    architectures = ""
    if not with_cuda:
        adapters = [file for file in adapters if not file.endswith("_cuda.cpp")]
    files = sources("cpu", ".cpp") + adapters
    if with_cuda:
        files += sources("cuda", ".cu")
        architectures = os.environ.setdefault("TORCH_CUDA_ARCH_LIST", CUDA_ARCHITECTURES)
        flags["nvcc"] = list(NVCC_FLAGS)
        kind = cpp_extension.CUDAExtension
    # simcore.build_info() reports these.
    record = {
        "SIMCORE_VERSION": f'"{PROJECT["version"]}"',
        "SIMCORE_BUILD_FLAGS": f'"{" ".join(CXX_FLAGS)}"',
        "SIMCORE_WITH_CUDA": str(int(with_cuda)),
        "SIMCORE_CUDA_ARCHITECTURES": f'"{architectures.replace(" ", ";")}"',
    }
    if with_cuda:
        # A change of torch changes every compile command, so that ninja rebuilds all objects.
        record["SIMCORE_TORCH_VERSION"] = f'"{torch.__version__}"'
    else:
        record["TORCH_TARGET_VERSION"] = f"0x{major:02x}{minor:02x}000000000000"
    module = kind(
        "simcore._C",
        files,
        define_macros=list(record.items()),
        extra_compile_args=flags,
        extra_link_args=LINK_FLAGS,
        py_limited_api=LIMITED,
    )
    # Headers of torch and of CUDA as the system's, whose warnings compilers do not print: -Wextra
    # is for csrc.
    for options in module.extra_compile_args.values():
        options += [part for path in module.include_dirs for part in ("-isystem", path)]
    module.include_dirs = [str(ROOT / "csrc")]
    module.with_cuda = with_cuda
    return module


class BuildExtension(cpp_extension.BuildExtension):
    """Keeps objects in one folder: pip's own is temporary, so each install would start afresh."""

    def finalize_options(self) -> None:
        """Use build/ext-<python>, whatever the caller chose."""
        super().finalize_options()
        self.build_temp = str(Path("build", f"ext-{sys.implementation.cache_tag}"))

    def run(self) -> None:
        """Write beside the extension which torch it takes, for simcore/_extension.py."""
        if note := check_torch(torch.__version__):
            print(note, file=sys.stderr, flush=True)
        headers = [sysconfig.get_path("include"), *cpp_extension.include_paths()]
        if missing := missing_tools(headers):
            raise SystemExit(f"simcore: cannot compile without {', and without '.join(missing)}")
        super().run()
        exactly = "==" + torch.__version__.partition("+")[0]
        wanted = exactly if self.extensions[0].with_cuda else f">={OLDEST}"
        beside = Path(self.get_ext_fullpath("simcore._C")).parent
        (beside / "_C_torch.txt").write_text(f"{wanted}\n")


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


if __name__ == "__main__":
    # pip of a virtual environment that is not activated leaves its bin/ (ninja) off PATH.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    setup(ext_modules=[extension()], cmdclass={"build_ext": BuildExtension, "bdist_wheel": Wheel})
