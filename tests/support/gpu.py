"""What the GPU tests share: whether there is one, and inputs that lie on it."""

from __future__ import annotations

import pytest
import torch

from simcore import build_info

READY = torch.cuda.is_available() and build_info()["cuda"]
WHY = "no CUDA device" if build_info()["cuda"] else "simcore was built without CUDA kernels"
# Every test of a file, as `pytestmark`; `pytest -ra` prints how many were skipped.
needs_cuda = [pytest.mark.cuda, pytest.mark.skipif(not READY, reason=WHY)]


def on_gpu(layers: list[torch.Tensor]) -> list[torch.Tensor]:
    return [layer.cuda() for layer in layers]
