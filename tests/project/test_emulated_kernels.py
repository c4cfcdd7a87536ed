"""The wheel of CUDA kernels, compiled for the host: what torch hands over, and what comes back.

g++ compiles the files of the wheel as they are; tests/cpp/cuda_host and tests/cpp/torch_host stand
for CUDA and for its part of torch, and tensors of the CPU for those of a device.
"""

import json
import os
import runpy
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import simcore
from simcore._kernels import choice
from support.processes import python

ROOT = Path(__file__).resolve().parents[2]
HOST = ROOT / "tests" / "cpp"
# Their emulation takes minutes; tests/cpp/cuda has such sizes.
LARGE = ("linear, highest, 70 layers", "linear, medium, 70 layers", "(20, 128, 128)")
START = """
import json, sys, torch
torch.version.cuda = "13.0"
import simcore
from simcore._kernels import choice, self_check
from simcore._kernels.self_check import OF_FAMILY
cpu, kernels = torch.device("cpu"), {name: choice.launcher(name) for name in choice.KERNELS}
"""
CASES = """
found = []
for make in OF_FAMILY.values():
    for name, case in make(cpu):
        if case.name not in sys.argv[1:]:
            composed = choice.KERNELS[name].composed
            found.append([name, case.name, self_check.difference(kernels[name], composed, case)])
print(json.dumps([simcore.build_info()["cuda_architectures"], found]))
"""
REFUSALS = """
def told(name, *arguments):
    try:
        kernels[name](*arguments)
    except Exception as error:
        return [f"{type(error).__module__}.{type(error).__name__}", str(error)]

x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
with_nan, far = x.clone(), x.clone()
with_nan[3, 2] = torch.nan
far[7, 2], far[8, 2] = 2.0**30, -(2.0**30)
options = "biased", 1.0, 0, "highest"
wide = torch.zeros(1, 1).expand(2**24, 2**20), torch.zeros(1, 1).expand(2**24, 2**21)
print(json.dumps([
    told("gram_terms", [x, with_nan], [], "linear", *options),
    told("gram_terms", [x, x.long()], [], "linear", *options),
    told("gram_terms", [x, far], [], "rbf", *options),
    told("affine_coupling", *wide, 1.0, False),
]))
"""

pytestmark = pytest.mark.slow


def extension_of_the_wheel():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_CUDA_ARCH_LIST", "emulated")
        setup = runpy.run_path(str(ROOT / "setup.py"))
        return setup["kernels"](Path("/usr/local/cuda"), "simcore_cuda")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the wheel, as pip would leave it."""
    place = tmp_path_factory.mktemp("emulated")
    (place / "simcore_cuda").mkdir()
    (place / "simcore_cuda.dist-info").mkdir()
    record = f"Name: simcore-cuda\nVersion: {simcore.__version__}\n"
    (place / "simcore_cuda.dist-info" / "METADATA").write_text(record)
    extension = extension_of_the_wheel()
    flags = [
        *("-std=c++20", "-O1", "-w", "-fPIC", "-fno-strict-aliasing", "-fvisibility=hidden"),
        *(f"-D{name}={value}" for name, value in extension.define_macros),
        *(f"-I{folder}" for folder in (ROOT / "csrc", HOST / "cuda_host")),
    ]
    files = [ROOT / name for name in extension.sources] + [HOST / "torch_host" / "cuda.cpp"]
    objects = [place / f"{number}.o" for number in range(len(files))]

    def compile_one(file, made):
        subprocess.run(["g++", *flags, "-x", "c++", "-c", file, "-o", made], check=True)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_one, files, objects))
    subprocess.run(
        [
            *("g++", "-shared", "-Wl,-Bsymbolic", *objects, "-pthread", "-ltorch_cpu"),
            f"-L{Path(torch.__file__).parent / 'lib'}",
            Path(simcore.__file__).parent / "libsimcore.so",
            *("-o", place / "simcore_cuda" / "libsimcore_cuda.so"),
        ],
        check=True,
    )
    return place


def run(place, program, *arguments):
    path = os.pathsep.join([str(place), str(ROOT), str(ROOT / "python")])
    done = python("-c", START + program, *arguments, cwd=place, PYTHONPATH=path)
    return json.loads(done.stdout)


def test_every_kernel_agrees_with_its_composed_form(place):
    architectures, found = run(place, CASES, *LARGE)
    assert architectures == ["emulated"]
    assert {name for name, _, _ in found} == set(choice.KERNELS)
    assert not [line for line in found if line[-1]]


def test_errors_have_the_classes_of_python(place):
    with_nan, of_numbers, far, full = run(place, REFUSALS)
    assert with_nan == [
        "builtins.ValueError",
        "X[1]: wanted finite values, got 1 NaN or infinite of 160",
    ]
    assert of_numbers == ["builtins.TypeError", "X[1]: wanted a floating-point dtype, got Long"]
    assert far[0] == "builtins.NotImplementedError"
    assert far[1].endswith("got some that float16 pairs do not resolve")
    assert full == [
        "torch.OutOfMemoryError",
        "CUDA out of memory: wanted an array [16777216, 1048576] of Float on cpu, got 1048576 free "
        "bytes of 2097152",
    ]
