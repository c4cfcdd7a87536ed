"""Models on several devices, with the stand-in for one of them (`support.stand_in`)."""

import copy

import pytest
import torch
from torch import nn

from simcore import compare, record
from simcore.recording import reading
from support.nets import seeded
from support.stand_in import CUDA, OnStandIn, stand_in_device

STATES = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor(
    [[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0], [1, 1, 1, 1, 1, 1]]
)


class Split(nn.Module):
    """Two layers on the host and one on a device."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(5, 5) for _ in range(3))

    def forward(self, x, attention_mask=None):
        second = self.second(self.first(x).to(self.second.weight.device))
        return self.third(second.cpu())


@pytest.mark.parametrize("pool", ["first", "last", "mean", "tokens", "flatten"])
@pytest.mark.parametrize("sample", [None, 3])
def test_layers_on_two_devices(pool, sample):
    options = {"pool": pool, "sample": sample}
    model = seeded(Split)
    with record(model, "*", **options) as whole:
        model(STATES, MASK)
    with stand_in_device() as device:
        model.second.to(CUDA)
        with record(model, "*", **options) as tape:
            model(STATES, MASK)
        waits = {place for place in device.waits if place.startswith("recording")}
    assert tape.names == ("first", "second", "third")
    for name, layer in tape.layers().items():
        assert not isinstance(layer, OnStandIn)
        torch.testing.assert_close(layer, whole.layers()[name])
    assert waits <= {
        "recording.tape:Tape._commit",  # rows go to the host at the end of the pass
        "recording.masks:PassMask.kept",  # the mask goes to the device, once for all layers
        "recording.pools:_positions",  # the number of rows is that of tokens
        "recording.pools:_drawn",  # the rows that are drawn
    }


def test_many_rows_do_not_wait_on_the_device(monkeypatch):
    model = seeded(Split)
    monkeypatch.setattr(reading, "WAITING_BYTES", 4 * 5 * 4 - 1)
    with stand_in_device() as device:
        model.second.to(CUDA)
        with record(model, "second", pool="mean") as tape:
            model(STATES, MASK)
            (name,) = (place for place in device.waits if place.startswith("recording.reading"))
    assert name == "recording.reading:Reading._own"
    assert tape.row_counts() == {"second": 4}


def test_rows_with_gradients_stay_where_they_are():
    with stand_in_device():
        model = seeded(Split)
        model.second.to(CUDA)
        with record(model, ["first", "second"], pool="mean", detach=False) as tape:
            model(STATES, MASK)
        assert [layer.is_cuda for layer in tape.layers().values()] == [False, True]
        assert all(layer.requires_grad for layer in tape.layers().values())


def test_models_on_two_devices_are_compared():
    here = nn.Sequential(nn.Linear(5, 5)).eval()
    there = copy.deepcopy(here)
    with stand_in_device():
        there.to(CUDA)
        result = compare(there, here, [STATES[0], STATES[1]], "0")
    torch.testing.assert_close(result.values, torch.ones(1, 1, dtype=torch.float64))
