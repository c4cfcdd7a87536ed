"""Compiles the operators, ``simcore._C`` and the CUDA kernels; all else is in pyproject.toml.

The operators are a library that knows no Python, and torch is not needed: csrc/torch/abi.h declares
what they call of it. Without a compiler Python alone is installed, and simcore computes by torch's
operations. Environment: ``SIMCORE_PURE=1`` asks for that, and ``0`` refuses it;
``SIMCORE_CUDA=0|1`` forces the CUDA kernels off or on, ``TORCH_CUDA_ARCH_LIST`` names their
architectures, ``SIMCORE_WHEEL=cuda`` builds the wheel ``simcore-cuda``, which has nothing else, and
``MAX_JOBS`` bounds the compilers that run at once.
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

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
OBJECTS = Path("build", "objects")  # pip's own folder is temporary: each install would start afresh
MACOS = sys.platform == "darwin"
SUFFIX = ".dylib" if MACOS else ".so"

# -ffp-contract=fast: -std=c++20 alone would forbid fused multiply-add.
# -fno-math-errno: lets sqrt and exp loops vectorise. Not -ffast-math: NaN must stay NaN.
# -g0: Python's own flags may ask for debug information, which takes most of the library's size.
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
LINK_FLAGS = [] if MACOS else ["-Wl,--exclude-libs,ALL", "-Wl,--no-as-needed"]
NVCC_FLAGS = ["-std=c++20", "-O3", "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC"]
# Machine code for A100 and its kin and for H100 and its kin, and PTX for what comes after. The
# kernels need 8.0 at least.
CUDA_ARCHITECTURES = "8.0;9.0+PTX"
FOR_CUDA = os.environ.get("SIMCORE_WHEEL", "") == "cuda"


def links() -> dict[str, object]:
    """README and addresses for the package index, where links of the repository lead nowhere.

    Both are as they are in the repository until pyproject.toml has its address.
    """
    readme = (ROOT / "README.md").read_text()
    urls = {}
    if address := PYPROJECT["tool"]["simcore"]["repository"]:
        files = f"{address}/{{}}/v{PROJECT['version']}/"
        inside = r"\[[^\]]*\]\((?!https?:|#)"
        readme = re.sub(rf"(?<=!){inside}", lambda link: link[0] + files.format("raw"), readme)
        readme = re.sub(rf"(?<!!){inside}", lambda link: link[0] + files.format("blob"), readme)
        urls = {
            "Source": address,
            "Documentation": files.format("blob") + "docs/start/index.md",
            "Changelog": files.format("blob") + "CHANGELOG.md",
            "Issues": f"{address}/issues",
        }
    return {
        "long_description": readme,
        "long_description_content_type": "text/markdown",
        "project_urls": urls,
    }


def sources(folder: str, suffix: str) -> list[str]:
    """Sources under csrc/folder, relative to the root and in a fixed order."""
    return sorted(str(p.relative_to(ROOT)) for p in (ROOT / "csrc" / folder).rglob(f"*{suffix}"))


def find_toolkit() -> Path | None:
    """A CUDA toolkit with compiler and headers; a wrapper of nvcc on PATH has none beside it."""
    named, nvcc = os.environ.get("CUDA_HOME"), shutil.which("nvcc")
    beside = Path(nvcc).resolve().parents[1] if nvcc else None
    places = [named] if named else [beside, "/usr/local/cuda"]
    for place in map(Path, filter(None, places)):
        if (place / "bin/nvcc").exists() and (place / "include/cuda_runtime_api.h").exists():
            return place
    return None


def cuda_toolkit() -> Path | None:
    """The toolkit to build csrc/cuda with: where it was asked for, or a GPU is."""
    choice = os.environ.get("SIMCORE_CUDA", "1" if FOR_CUDA else "")
    if choice not in ("", "0", "1"):
        raise SystemExit(f"SIMCORE_CUDA must be 0, 1 or unset, got {choice!r}")
    if choice == "0" or (choice == "" and not Path("/dev/nvidiactl").exists()):
        return None
    toolkit = find_toolkit()
    if toolkit is None and choice == "1":
        raise SystemExit(
            "simcore: wanted a CUDA toolkit (bin/nvcc and include/cuda_runtime_api.h) for the CUDA "
            "kernels, found none; set CUDA_HOME or PATH"
        )
    return toolkit


def is_pure() -> bool:
    """Whether nothing is compiled: where that is asked for, or cannot be."""
    choice = os.environ.get("SIMCORE_PURE", "")
    if choice not in ("", "0", "1"):
        raise SystemExit(f"SIMCORE_PURE must be 0, 1 or unset, got {choice!r}")
    if choice or os.environ.get("SIMCORE_CUDA") == "1":
        return choice == "1"
    compiler = os.environ.get("CXX") or sysconfig.get_config_var("CXX") or "c++"
    return any("ninja" not in tool for tool in missing_tools(shlex.split(compiler)))


def operators() -> Extension:
    """The library of the operators, and their kernels for CPUs."""
    adapters = [file for file in sources("torch", ".cpp") if not file.endswith("_cuda.cpp")]
    return Extension("simcore.libsimcore", sources("cpu", ".cpp") + adapters)


def module() -> Extension:
    """`simcore._C`; simcore.build_info() reports the macros."""
    record = {"SIMCORE_VERSION": PROJECT["version"], "SIMCORE_BUILD_FLAGS": " ".join(CXX_FLAGS)}
    macros = [(name, f'"{value}"') for name, value in record.items()]
    return Extension("simcore._C", sources("python", ".cpp"), define_macros=macros)


def kernels(toolkit: Path, package: str) -> Extension:
    """The library of the kernels for GPUs, with the checks that they share with those for CPUs."""
    shared = ("checks.cpp", "convert.cpp", "errors.cpp", "library.cpp", "types.cpp")
    files = [file for file in sources("torch", ".cpp") if file.endswith(("_cuda.cpp", *shared))]
    files += sources("cuda", ".cu")
    architectures = os.environ.get("TORCH_CUDA_ARCH_LIST", CUDA_ARCHITECTURES).replace(" ", ";")
    return Extension(
        f"{package}.libsimcore_cuda",
        files,
        include_dirs=[str(toolkit / "include")],
        library_dirs=[str(toolkit / folder) for folder in ("lib64", "lib")],
        define_macros=[("SIMCORE_CUDA_ARCHITECTURES", f'"{architectures}"')],
    )


def code_of(architectures: str) -> list[str]:
    """What nvcc is told of "8.0;9.0+PTX": machine code of each, and code for what comes after."""
    options = []
    for name in architectures.split(";"):
        number = name.removesuffix("+PTX").replace(".", "")
        options.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        if name.endswith("+PTX"):
            options.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    return options


def missing_tools(compiler: list[str]) -> list[str]:
    """What compiling needs and this machine lacks."""
    missing = []
    if shutil.which("ninja") is None:
        missing.append("ninja (pip install ninja)")
    if shutil.which(compiler[0]) is None:
        return [
            f"a C++ compiler ({compiler[0]} is not on PATH; Debian: apt-get install g++)",
            *missing,
        ]
    asked = subprocess.run(
        [*compiler, f"-I{sysconfig.get_path('include')}", CXX_FLAGS[0], "-E", "-x", "c++", "-"],
        input="#include <span>\n#if !__has_include(<Python.h>)\nlacks Python\n#endif",
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode != 0:
        said = asked.stderr.strip().partition("\n")[0]
        return [f"a compiler of C++20 ({compiler[0]} failed: '{said}')", *missing]
    if "lacks Python" in asked.stdout:
        missing.append("the headers of Python (Debian: apt-get install python3-dev)")
    return missing


def write_changed(file: Path, text: str) -> None:
    """Write a file, unless it has this text: what is compiled from it would look old."""
    if not file.exists() or file.read_text() != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


class Ninja:
    """The lines of a build.ninja."""

    def __init__(self) -> None:
        self.lines = [f"builddir = {OBJECTS}"]
        self.made: set[str] = set()

    def rule(self, name: str, command: list[str], more: str = "") -> None:
        """Add a rule; `more` follows the command as it is, with variables of ninja."""
        words = shlex.join(command).replace("$", "$$")
        self.lines += [f"rule {name}", f"  command = {words} {more}"]
        if "$out.d" in more:
            self.lines += ["  depfile = $out.d", "  deps = gcc"]

    def build(self, rule: str, made: str, files: list[str], flags: list[str] = ()) -> str:
        """Add an edge if it is new, and return what it makes."""
        if made in self.made:
            return made
        self.made.add(made)
        out, *inputs = (re.sub(r"([$ :])", r"$\1", name) for name in (made, *files))
        words = shlex.join(flags).replace("$", "$$")
        self.lines += [f"build {out}: {rule} {' '.join(inputs)}", f"  flags = {words}"]
        return made

    def run(self) -> None:
        """Write the file and run ninja on it."""
        OBJECTS.mkdir(parents=True, exist_ok=True)
        file = OBJECTS / "build.ninja"
        file.write_text("\n".join([*self.lines, ""]))
        jobs = os.environ.get("MAX_JOBS")
        subprocess.run(["ninja", "-f", str(file), *(["-j", jobs] if jobs else [])], check=True)


class BuildExtension(build_ext):
    """Compiles by ninja, what has changed alone; compilers and their flags are Python's."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return the place of a module, or of a library, whose name no Python looks for."""
        if fullname.rpartition(".")[2].startswith("lib"):
            return fullname.replace(".", os.sep) + SUFFIX
        return super().get_ext_filename(fullname)

    def run(self) -> None:
        """Compile, and leave no kernels of an earlier build in the checkout."""
        super().run()
        if self.inplace and len(self.extensions) == 2:
            (ROOT / "simcore" / "libsimcore_cuda.so").unlink(missing_ok=True)

    def build_extensions(self) -> None:
        """Check the tools, and compile."""
        compiler = self.compiler.compiler_so_cxx
        if missing := missing_tools(compiler):
            raise SystemExit(f"simcore: cannot compile without {', and without '.join(missing)}")
        self.ninja = Ninja()
        self.ninja.rule(
            "cxx", [*compiler, *CXX_FLAGS, "-Icsrc"], "$flags -MMD -MF $out.d -c $in -o $out"
        )
        linker = [*self.compiler.linker_so_cxx, *LINK_FLAGS]
        self.ninja.rule("module", linker, "$in $flags -o $out")
        linker = ["-dynamiclib" if word == "-bundle" else word for word in linker]  # macOS
        self.ninja.rule("library", linker, "$in $flags -o $out")
        for extension in self.extensions:
            place = Path(self.get_ext_fullpath(extension.name))
            place.parent.mkdir(parents=True, exist_ok=True)
            build = {"libsimcore": self.library, "_C": self.python, "libsimcore_cuda": self.cuda}
            build[extension.name.rpartition(".")[2]](extension, str(place))
        self.ninja.run()

    def objects(self, extension: Extension, flags: list[str], files: list[str]) -> list[str]:
        """Compile files of C++; extensions share some, and differ in flags."""
        folder = OBJECTS / extension.name
        flags = [*flags, *(f"-D{name}={value}" for name, value in extension.define_macros)]
        return [self.ninja.build("cxx", f"{folder / file}.o", [file], flags) for file in files]

    def units(self, files: list[str]) -> list[str]:
        """Join the files of each folder into one unit: headers are most of what is compiled.

        The files of csrc/cpu/isa stay apart: each is compiled for its own instruction set.
        """
        joined: dict[str, list[str]] = {}
        for file in files:
            folder = Path(file).parent
            unit = Path(file) if folder.name == "isa" else OBJECTS / "units" / f"{folder}.cpp"
            joined.setdefault(str(unit), []).append(file)
        for unit, parts in joined.items():
            if unit not in parts:
                includes = (f'#include "{Path(part).relative_to("csrc")}"\n' for part in parts)
                write_changed(Path(unit), "".join(includes))
        return list(joined)

    def stub(self, name: str, functions: list[str]) -> str:
        """Make what the linker takes for a library that is there when simcore runs."""
        file = OBJECTS / f"{name}.cpp"
        write_changed(
            file, "".join(f'extern "C" void {function}() {{}}\n' for function in functions)
        )
        made = self.ninja.build("cxx", f"{file}.o", [str(file)], ["-fvisibility=default"])
        return self.ninja.build(
            "library", f"{OBJECTS / name}.so", [made], [f"-Wl,-soname,{name}.so"]
        )

    def torch(self) -> list[str]:
        """Stand-ins of torch's library; macOS needs none."""
        declared = (ROOT / "csrc" / "torch" / "abi.h").read_text()
        names = re.findall(r"\b((?:aoti_)?torch_\w+)\(", declared)
        return [] if MACOS else [self.stub("libtorch_cpu", names)]

    def library(self, extension: Extension, place: str) -> None:
        """Link the operators; defs: what abi.h does not declare of torch is not there."""
        flags = ["-Wl,-soname,libsimcore.so", "-Wl,-z,defs", "-pthread"]
        if MACOS:
            flags = ["-Wl,-install_name,@rpath/libsimcore.dylib"]
        objects = self.objects(extension, [], self.units(extension.sources))
        self.ninja.build("library", place, [*objects, *self.torch()], flags)

    def python(self, extension: Extension, place: str) -> None:
        """Link the module, which looks for the operators beside it."""
        import pybind11

        folders = [pybind11.get_include(), sysconfig.get_path("include")]
        flags = [part for folder in folders for part in ("-isystem", folder)]
        beside = "@loader_path" if MACOS else "$ORIGIN"
        objects = self.objects(extension, flags, extension.sources)
        inputs = [*objects, self.get_ext_fullpath("simcore.libsimcore")]
        self.ninja.build("module", place, inputs, [f"-Wl,-rpath,{beside}"])

    def cuda(self, extension: Extension, place: str) -> None:
        """Compile the kernels by nvcc, and link them.

        libtorch brings the library of CUDA where torch has one, and nothing is called in it.
        """
        (include,), libraries = extension.include_dirs, extension.library_dirs
        ((_, architectures),) = extension.define_macros
        nvcc = [str(Path(include).parent / "bin" / "nvcc"), *NVCC_FLAGS]
        self.ninja.rule(
            "nvcc",
            [*nvcc, *code_of(architectures.strip('"')), "-Icsrc"],
            "-MMD -MF $out.d -c $in -o $out",
        )
        adapters = [file for file in extension.sources if file.endswith(".cpp")]
        objects = self.objects(extension, ["-isystem", include], adapters)
        for file in extension.sources:
            if file.endswith(".cu"):
                objects.append(self.ninja.build("nvcc", f"{OBJECTS / file}.o", [file]))
        stubs = [
            *self.torch(),
            self.stub("libtorch", []),
            self.stub("libsimcore", ["simcore_host"]),
        ]
        flags = ["-Wl,-z,defs", "-lcudart", *(f"-L{folder}" for folder in libraries)]
        self.ninja.build("library", place, [*objects, *stubs], flags)


class Wheel(bdist_wheel):
    """Names in the wheel's tag the C library of this machine: an older one may lack symbols."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of Python, ABI and platform; the CUDA kernels know no Python."""
        python, abi, where = super().get_tag()
        library, version = platform.libc_ver()
        if library == "glibc" and where.startswith("linux_"):
            where = f"manylinux_{version.replace('.', '_')}_{where.removeprefix('linux_')}"
        return ("py3", "none", where) if FOR_CUDA else (python, abi, where)


class CudaDistribution(Distribution):
    """The wheel simcore-cuda, of which pyproject.toml says nothing."""

    def parse_config_files(self, *_: object, **__: object) -> None:
        """Read no pyproject.toml: it describes simcore."""


def distribution() -> dict[str, object]:
    """What `setup` is given: simcore, or with SIMCORE_WHEEL=cuda the wheel of CUDA kernels."""
    if not FOR_CUDA and is_pure():
        return {}
    toolkit = cuda_toolkit()
    if not FOR_CUDA:
        found = [kernels(toolkit, "simcore")] if toolkit else []
        return {"ext_modules": [operators(), module(), *found]}
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
        "ext_modules": [kernels(toolkit, "simcore_cuda")],
        "distclass": CudaDistribution,
    }


if __name__ == "__main__":
    # pip of a virtual environment that is not activated leaves its bin/ (ninja) off PATH.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    commands = {"build_ext": BuildExtension, "bdist_wheel": Wheel}
    setup(cmdclass=commands, **({} if FOR_CUDA else links()), **distribution())
