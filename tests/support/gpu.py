"""Helpers of the GPU tests, whose import skips a file without a GPU: inputs in its memory."""

from __future__ import annotations

import pytest
import torch

from simcore import build_info

if not (torch.cuda.is_available() and build_info()["cuda"]):
    why = "no CUDA device" if build_info()["cuda"] else "simcore was built without CUDA kernels"
    pytest.skip(why, allow_module_level=True)  # not collected: 900 tests that say the same
# A file of GPU tests assigns this to `pytestmark`.
needs_cuda = pytest.mark.cuda


def on_gpu(layers: list[torch.Tensor]) -> list[torch.Tensor]:
    return [layer.cuda() for layer in layers]
