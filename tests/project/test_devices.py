"""The table of what runs on a CUDA device, beside the registrations and the documentation."""

import re
from pathlib import Path

import torch

import simcore
from simcore._measures import MEASURES
from simcore._ops import devices, spectral_batched
from simcore._ops.devices import COMPOSED, CUDA_KERNELS, HOST
from support.operators import defined_operators

ROOT = Path(__file__).resolve().parents[2]


def test_kernels_are_those_that_the_sources_register():
    sources = (ROOT / "csrc" / "torch").glob("*_cuda.cpp")
    found = {
        name for source in sources for name in re.findall(r'm\.impl\("(\w+)"', source.read_text())
    }
    assert found == set(CUDA_KERNELS)


def test_all_others_are_registered_by_python_but_for_those_of_the_host():
    defined = defined_operators()
    others = defined - {*CUDA_KERNELS}
    registered = {
        name
        for name in others
        if torch._C._dispatch_has_kernel_for_dispatch_key(f"simcore::{name}", "CUDA")
    }
    assert others - registered == set(HOST)
    assert {*CUDA_KERNELS} < defined
    assert {*spectral_batched.OPERATORS} <= registered


def test_operators_that_are_composed_everywhere_have_no_kernel():
    for name in COMPOSED:
        for key in ("CPU", "CUDA"):
            assert torch._C._dispatch_has_kernel_for_dispatch_key(f"simcore::{name}", key)
    sources = "".join(path.read_text() for path in (ROOT / "csrc" / "torch").glob("*.cpp"))
    assert not {*COMPOSED} & {*re.findall(r'"(\w+)"', sources)}


def test_every_grid_is_in_the_table():
    grids = {name for name in simcore.__all__ if name.endswith("_grid")}
    assert grids <= {measure.function for measure in MEASURES.values()}
    lines = devices.markdown().splitlines()
    assert all(any(line.startswith(f"| `{name}` |") for line in lines) for name in grids)
    assert "| `rsa_grid`, spearman | kernels | torch's operations |" in lines
    assert "| `rsm_difference_grid` | kernels | kernels |" in lines
    assert "| `neuronsim_grid` | torch's operations | torch's operations |" in lines


def test_an_option_has_a_row_where_it_calls_operators_that_the_grid_does_not():
    lines = [line.split(" | ") for line in devices.markdown().splitlines()]
    options = {cells[0].removeprefix("| ") for cells in lines if "_grid`, " in cells[0]}
    wanted = {
        f"`{measure.function}`, {option}"
        for measure in MEASURES.values()
        for variant in measure.variants
        for option in map(str, variant.options.values())
        if variant.operators is not None
        and (not variant.operators or {*variant.operators} - {*measure.operators})
    }
    assert options == wanted
