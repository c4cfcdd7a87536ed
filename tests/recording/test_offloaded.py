"""Models whose weights accelerate keeps elsewhere, on the meta device between calls."""

import pytest
import torch
from torch import nn

from simcore import Track, compare
from simcore.recording.batches import device_of
from support.nets import Encoder, seeded, token_batches

accelerate = pytest.importorskip("accelerate")
BATCHES = token_batches()


def offloaded():
    model = accelerate.cpu_offload(seeded(Encoder), execution_device=torch.device("cpu"))
    assert next(model.parameters()).device.type == "meta"
    return model


def test_offloaded_models_are_compared():
    options = {"pool": "mean", "measure": "cka"}
    wanted = compare(seeded(Encoder), None, BATCHES, "layer.*", **options)
    got = compare(offloaded(), seeded(Encoder), BATCHES, "layer.*", **options)
    assert torch.equal(got.values, wanted.values)


def test_offloaded_models_are_tracked():
    track = Track(offloaded(), "layer.*", BATCHES, pool="mean")
    values = track.step(1)["start"]
    assert torch.equal(values, torch.ones_like(values))


def test_the_device_of_a_model():
    assert device_of(nn.Sequential(nn.Linear(2, 2))) == torch.device("cpu")
    assert device_of(nn.Sequential(nn.ReLU())) is None
    assert device_of(nn.Linear(2, 2, device="meta")) is None  # the batch stays where it is
    model = offloaded()
    accelerate.hooks.add_hook_to_module(model.embed, accelerate.hooks.ModelHook(), append=True)
    assert type(model.embed._hf_hook) is accelerate.hooks.SequentialHook
    assert device_of(model) == torch.device("cpu")
