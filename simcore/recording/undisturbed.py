"""A forward pass in the middle of a training that leaves no trace in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from simcore.recording.batches import device_of


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluate `model` without gradients inside the block; restore modes and random states.

    The global random states of the CPU and of the CUDA devices of the model are restored.
    """
    modes = [(module, module.training) for module in model.modules()]
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    devices.add(device_of(model) or torch.device("cpu"))
    cuda = sorted({device.index or 0 for device in devices if device.type == "cuda"})
    # Not inference mode: training must be able to use tensors that a module caches here.
    with torch.random.fork_rng(cuda), torch.no_grad():
        model.eval()
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training
