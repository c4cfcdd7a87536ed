"""Peak memory of a grid beyond its layers, in a process of its own."""

from __future__ import annotations

from support.forks import in_fork

MB = 2**20
# What the process may need beside the workspace: stacks of the threads, the allocator's rounding,
# pages of libraries touched for the first time.
SLACK = 8 * MB

PROGRAM = """
import torch
from bench.peak import peak_during
from simcore import {function} as grid
torch.set_num_threads(2)
generator = torch.Generator().manual_seed(0)
def make(count, n, width):
    return list(torch.randn(count, n, width, generator=generator, dtype={dtype}))
options = {options!r}
# Libraries and threads are started, with matrices large enough for their blocked routines.
grid(make(4, 400, 300), **{{**options, "max_memory": None}})
layers = make({count}, {n}, {width})
for layer in layers[: {dependent}]:
    layer[:, -1] = layer[:, 0]
if {mapped}:
    layers = [layer.numpy() for layer in layers]
print(peak_during(lambda: grid(layers, **options)))
"""


def peak(
    function, *, count=12, n=1500, width=256, dtype="float32", dependent=0, mapped=False, **options
):
    """Return it for layers of which some have dependent columns, or which are numpy's."""
    program = PROGRAM.format(
        function=function, options=options, dtype=f"torch.{dtype}", count=count, n=n, width=width,
        dependent=dependent, mapped=mapped,
    )  # fmt: skip
    return int(in_fork(program))
