"""LAPACK within our parallel regions, after torch was told how many threads to use.

The QR decomposition of MKL waits without end for threads that a parallel region does not give it. A
process that waits so cannot be stopped by a test of its own, so another one runs it.
"""

import subprocess
import sys

CALLS = ("svcca_grid", "cca_grid", "pwcca_grid", "procrustes_grid", "aligned_cosine_grid")
SCRIPT = f"""
import torch, simcore
torch.set_num_threads(2)
generator = torch.Generator().manual_seed(0)
layers = [
    torch.randn(1000, width, dtype=torch.float64, generator=generator) for width in (128, 128, 100)
]
for name in {CALLS}:
    for _ in range(3):
        getattr(simcore, name)(layers)
    print(name, torch.get_num_threads(), flush=True)
torch.linalg.svd(layers[0])
"""


def test_decompositions_end_after_set_num_threads():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.splitlines() == [f"{name} 2" for name in CALLS]
