"""Every pool against its definition, on outputs of every shape and in every dtype."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from simcore import record
from support import tolerance
from support.cases import DTYPES, HALVES
from support.precision import LOWER, lower_precision


def recorded(states, mask=None, **options):
    """Record a module that gives `states`, in a model that gets `mask`."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Identity()

        def forward(self, x, attention_mask=None):
            return self.layer(x)

    model = Model().eval()
    with record(model, "layer", **options) as tape:
        model(states) if mask is None else model(states, mask)
    return tape.layers()["layer"]


STATES = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0))
# Padding on the right, on the left, on both sides; none.
MASK = torch.tensor(
    [[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0], [1, 1, 1, 1, 1, 1]]
)
FIRST, LAST = [0, 2, 1, 0], [3, 5, 4, 5]


@pytest.mark.parametrize("kind", [torch.long, torch.bool, torch.float32], ids=str)
def test_positions_that_the_mask_decides(kind):
    mask = MASK.to(kind)
    assert torch.equal(recorded(STATES, mask, pool="first"), STATES[range(4), FIRST])
    assert torch.equal(recorded(STATES, mask, pool="last"), STATES[range(4), LAST])
    assert torch.equal(recorded(STATES, mask, pool="tokens"), STATES[MASK.bool()])


def test_without_padding():
    assert torch.equal(recorded(STATES, pool="first"), STATES[:, 0])
    assert torch.equal(recorded(STATES, mask=None, pool="flatten"), STATES.flatten(1))
    model = nn.Sequential(nn.Identity()).eval()
    for pool, wanted in (("last", STATES[:, -1]), ("tokens", STATES.flatten(0, 1))):
        with record(model, "0", pool=pool, mask=False) as tape:
            model(STATES)
        assert torch.equal(tape.layers()["0"], wanted)


def mean_of(states, mask):
    weights = mask[..., None].to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("dtype", (*DTYPES, *HALVES), ids=str)
def test_mean(dtype, offset):
    states = (torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(1)) + offset).to(dtype)
    for mask in (MASK, torch.ones_like(MASK)):
        got = recorded(states, mask, pool="mean")
        assert got.dtype == dtype
        wanted = mean_of(states.double(), mask)
        tolerance.assert_close(got, wanted, dtype, naive=mean_of(states, mask))
        transposed = states.transpose(0, 1).contiguous().transpose(0, 1)
        assert torch.equal(recorded(transposed, mask, pool="mean"), got)


def test_half_precision_is_rounded_once():
    states = torch.full((2, 300, 3), 300.0, dtype=torch.float16)  # the sum overflows float16
    mask = torch.ones(2, 300, dtype=torch.long)
    mask[0, 7:] = 0
    assert torch.equal(recorded(states, mask, pool="mean"), states[:, 0])
    images = states[..., None].transpose(1, 2)
    assert torch.equal(recorded(images, pool="spatial-mean"), states[:, 0])


@pytest.mark.parametrize("interface", LOWER)
def test_products_of_low_precision_are_not_used(interface, monkeypatch):
    with lower_precision(interface):
        monkeypatch.setattr(torch, "bmm", None)  # oneDNN may ignore the precision on this machine
        got = recorded(STATES, MASK, pool="mean")
    wanted = mean_of(STATES.double(), MASK)
    tolerance.assert_close(got, wanted, torch.float32, naive=mean_of(STATES, MASK))


@pytest.mark.parametrize("precision", ["highest", *LOWER])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_stands_at_padding_does_not_matter(value, precision):
    with nullcontext() if precision == "highest" else lower_precision(precision):
        wanted = recorded(STATES, MASK, pool="mean")
        spoiled = torch.where(MASK[..., None].bool(), STATES, value)
        assert torch.equal(recorded(spoiled, MASK, pool="mean"), wanted)


def test_autocast_does_not_reach_the_pools():
    wanted = recorded(STATES, MASK, pool="mean")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(recorded(STATES, MASK, pool="mean"), wanted)


IMAGES = torch.randn(3, 5, 4, 2, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_images(memory_format):
    images = IMAGES.to(memory_format=memory_format)
    positions = IMAGES.permute(0, 2, 3, 1).reshape(-1, 5)
    assert torch.equal(recorded(images, pool="positions"), positions)
    assert torch.equal(recorded(images, pool="flatten"), IMAGES.flatten(1))
    got = recorded(images, pool="spatial-mean")
    tolerance.assert_close(got, IMAGES.double().mean((2, 3)), torch.float32, IMAGES.mean((2, 3)))
    videos = IMAGES[..., None].expand(-1, -1, -1, -1, 3)
    assert recorded(videos, pool="positions").shape == (3 * 4 * 2 * 3, 5)


def test_signals_of_one_dimension_have_their_channels_first():
    model, x = nn.Sequential(nn.Conv1d(2, 5, 3)).eval(), torch.randn(4, 2, 9)
    with record(model, "0", pool="positions") as tape:
        model(x)
    assert torch.equal(tape.layers()["0"], model(x).transpose(1, 2).reshape(-1, 5))
    message = "pool: wanted 'spatial-mean', 'positions', 'flatten' or a function .* got 'mean'"
    with pytest.raises(ValueError, match=message), record(model, "0", pool="mean", mask=False):
        model(x)


@pytest.mark.parametrize("pool", [None, "first", "last", "mean", "tokens", "flatten", "positions"])
def test_rows_are_taken_as_they_are(pool):
    rows = torch.randn(4, 5)
    assert torch.equal(recorded(rows, pool=pool), rows)


def test_functions():
    assert torch.equal(recorded(STATES, pool=lambda s: s[:, 2]), STATES[:, 2])

    def masked_maximum(states, mask):
        return states.masked_fill(~mask[..., None], -torch.inf).amax(1)

    wanted = torch.stack([STATES[i][MASK[i].bool()].amax(0) for i in range(4)])
    assert torch.equal(recorded(STATES, MASK, pool=masked_maximum), wanted)


class Sizes(TorchDispatchMode):
    """Collects the bytes of what torch's operators make, views apart."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        given = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        if isinstance(result, torch.Tensor):
            storage = result.untyped_storage()
            if storage.data_ptr() not in given:
                self.made.append(storage.nbytes())
        return result


@pytest.mark.parametrize("pool", ["mean", "first", "last", "tokens", "positions", "spatial-mean"])
def test_pools_copy_nothing_but_their_rows(pool):
    states = torch.randn(8, 100, 16, 4) if pool in ("positions", "spatial-mean") else None
    states = torch.randn(8, 100, 64) if states is None else states
    mask = torch.ones(8, 100, dtype=torch.long)
    mask[3, 50:] = 0
    with torch.no_grad(), Sizes() as sizes:
        rows = recorded(states, mask, pool=pool)
    # Masks, counts and indices are [B, T].
    assert max(sizes.made) <= max(rows.nbytes, 8 * mask.numel())
    # The sum, its absolute values (whether all are finite), and the mean.
    assert sizes.made.count(rows.nbytes) == (3 if pool == "mean" else 1)
