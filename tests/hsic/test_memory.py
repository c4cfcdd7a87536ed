"""`max_memory` is obeyed by strided layers, plans and backward passes: peak resident memory.

Those of the grids are in grid/test_memory.py.
"""

import pytest
import torch

from simcore import plan_cka
from support.forks import in_fork
from support.peaks import MB, SLACK, peak

pytestmark = pytest.mark.slow


def test_strided_inputs_are_not_copied_whole():
    program = f"""
import torch
from bench.peak import peak_during
from simcore import cka_grid
torch.set_num_threads(2)
cka_grid(torch.randn(2, 64, 8).transpose(1, 2))
wide = torch.randn(4, 512, 40_000).transpose(1, 2)  # 330 MB, and 5 GB as products
assert not wide[0].is_contiguous()
print(peak_during(lambda: cka_grid(wide[:2, :8000], max_memory={64 * MB})))
"""
    assert int(in_fork(program)) <= 64 * MB + SLACK


@pytest.mark.parametrize("limit", [24 * MB, 200 * MB])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_plan_tells_the_truth(kernel, limit):
    """The workspace that the plan announces bounds what the grid really takes."""
    n, count, width = 1500, 24, 64
    torch.set_num_threads(2)
    plan = plan_cka([torch.empty(n, width)] * count, kernel=kernel, method="gram", max_memory=limit)
    options = {"kernel": kernel, "method": "gram", "max_memory": limit}
    measured = peak("cka_grid", n=n, count=count, width=width, **options)
    assert measured <= plan.workspace_bytes + SLACK
    assert plan.workspace_bytes <= limit


BACKWARD = """
import torch
from bench.peak import peak_during
from simcore import cka_grid
torch.set_num_threads(2)
def step(n, widths, needed, options):
    layers = [torch.randn(n, p, dtype={dtype}, requires_grad=i in needed)
              for i, p in enumerate(widths)]
    half = len(layers) // 2
    x, y = (layers[:half], layers[half:]) if {cross} else (layers, None)
    total = cka_grid(x, y, **options).sum()
    wanted = [layer for layer in layers if layer.requires_grad]
    return lambda: torch.autograd.grad(total, wanted)
options = {options!r}
# Libraries and threads are started, with matrices large enough for their blocked routines.
step(400, [300] * 4, range(4), {{**options, "max_memory": None}})()
widths = [{width}] * {count}
needed = range({count}) if {needed} is None else {needed}
print(peak_during(step({n}, widths, needed, options)))
"""

# name: (n, layers, width, limit, which need a gradient, cross, dtype, options).
BACKWARD_JOBS = {
    # centred copies of all layers would be 33 MB
    "unbiased": (4000, 16, 128, 16 * MB, None, False, "torch.float32", {"estimator": "unbiased"}),
    # centred copies would be 41 MB
    "halves": (5000, 8, 256, 16 * MB, None, False, "torch.bfloat16", {}),
    # and 82 MB
    "many rows": (40_000, 4, 64, 16 * MB, None, True, "torch.float64", {}),
    # gradients of all layers would be 66 MB
    "one layer": (4000, 16, 256, 16 * MB, [3], False, "torch.float32", {}),
    # products with all layers would be 134 MB
    "wide layers": (256, 2, 4096, 48 * MB, [1], True, "torch.float32", {"method": "gram"}),
}


@pytest.mark.parametrize("name", BACKWARD_JOBS)
def test_max_memory_is_obeyed_by_the_backward_pass(name):
    """Gradients are its result and come on top."""
    n, count, width, limit, needed, cross, dtype, options = BACKWARD_JOBS[name]
    program = BACKWARD.format(
        n=n,
        count=count,
        width=width,
        needed=needed,
        cross=cross,
        dtype=dtype,
        options={**options, "max_memory": limit},
    )
    results = (count if needed is None else len(needed)) * n * width
    results *= torch.empty(0, dtype=getattr(torch, dtype.removeprefix("torch."))).itemsize
    assert int(in_fork(program)) - results <= limit + 4 * MB
