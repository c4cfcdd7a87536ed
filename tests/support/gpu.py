"""Helpers of the GPU tests: a mark that skips without a GPU, and inputs in its memory."""

from __future__ import annotations

import pytest
import torch

from simcore import build_info

READY = torch.cuda.is_available() and build_info()["cuda"]
WHY = "no CUDA device" if build_info()["cuda"] else "simcore was built without CUDA kernels"
# A file of GPU tests assigns this to `pytestmark`; `pytest -ra` prints how many were skipped.
needs_cuda = [pytest.mark.cuda, pytest.mark.skipif(not READY, reason=WHY)]


def on_gpu(layers: list[torch.Tensor]) -> list[torch.Tensor]:
    return [layer.cuda() for layer in layers]
