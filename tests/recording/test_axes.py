"""Which axis holds the channels, where a module shows it."""

import pytest
import torch
from torch import nn

from support.nets import seeded, taped

CHANNELS, HEIGHT, WIDTH = 6, 4, 5
IMAGES = torch.randn(3, CHANNELS, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(0))
LAST = IMAGES.movedim(1, -1)  # [B, H, W, C]


class Turned(nn.Module):
    """Runs layers on ``[B, H, W, C]``, and gives the channels second or last."""

    def __init__(self, *layers, second):
        super().__init__()
        self.layers, self.second = nn.Sequential(*layers), second

    def forward(self, images):
        states = self.layers(images.movedim(1, -1))
        return states.movedim(-1, 1) if self.second else states


def recorded(module, inputs, pool, **options):
    model = nn.Sequential(module).eval()
    return taped(model, "0", [inputs], pool=pool, mask=False, **options).layers()["0"]


@pytest.mark.parametrize("layer", [nn.Linear(CHANNELS, 7), nn.LayerNorm(CHANNELS)])
def test_layers_that_give_the_channels_last(layer):
    """As the inner layers of ConvNeXt and Swin do."""
    wanted = layer(LAST).detach()
    got = recorded(layer, LAST, "spatial-mean")
    torch.testing.assert_close(got, wanted.mean((1, 2)))
    assert torch.equal(recorded(layer, LAST, "positions"), wanted.flatten(0, 2))
    assert torch.equal(recorded(layer, LAST, "flatten"), wanted.flatten(1))


def test_a_norm_over_all_axes_leaves_the_channels_where_they_are():
    layer = nn.LayerNorm(IMAGES.shape[1:])
    wanted = layer(IMAGES).detach()
    torch.testing.assert_close(recorded(layer, IMAGES, "spatial-mean"), wanted.mean((2, 3)))


@pytest.mark.parametrize("pool", ["spatial-mean", "positions"])
def test_a_module_that_shows_its_channels_last_is_refused(pool):
    block = seeded(Turned, nn.LayerNorm(CHANNELS), nn.Linear(CHANNELS, CHANNELS), second=False)
    message = (
        r"pool: wanted the channels of the output of '0' on its second axis, got shape "
        r"\(3, 4, 5, 6\), .*select=lambda output: output.movedim\(-1, 1\).*'flatten'"
    )
    with pytest.raises(ValueError, match=message):
        recorded(block, IMAGES, pool)
    wanted = block(IMAGES).detach()
    got = recorded(block, IMAGES, pool, select=lambda output: output.movedim(-1, 1))
    rows = {"spatial-mean": wanted.mean((1, 2)), "positions": wanted.flatten(0, 2)}
    torch.testing.assert_close(got, rows[pool])
    assert torch.equal(recorded(block, IMAGES, "flatten"), wanted.flatten(1))


@pytest.mark.parametrize(
    "module",
    [
        Turned(nn.LayerNorm(CHANNELS), nn.Linear(CHANNELS, CHANNELS), second=True),  # ConvNeXt
        nn.Sequential(nn.Conv2d(CHANNELS, 8, 1), nn.Sequential(nn.Conv2d(8, WIDTH, 1))),
        nn.Sequential(nn.BatchNorm2d(CHANNELS), Turned(nn.Linear(CHANNELS, WIDTH), second=True)),
        nn.ReLU(),
    ],
)
def test_modules_whose_channels_are_second(module):
    wanted = module.eval()(IMAGES).detach()
    torch.testing.assert_close(recorded(module, IMAGES, "spatial-mean"), wanted.mean((2, 3)))


def test_a_block_of_one_dimension_has_its_channels_first():
    block = nn.Sequential(nn.Conv1d(2, CHANNELS, 3), nn.BatchNorm1d(CHANNELS), nn.ReLU())
    signals = torch.randn(3, 2, 9, generator=torch.Generator().manual_seed(0))
    wanted = block.eval()(signals).detach()
    torch.testing.assert_close(recorded(block, signals, "spatial-mean"), wanted.mean(2))
    for pool in ("mean", "first", "last", "tokens"):
        message = rf"pool: wanted 'spatial-mean', .* \(3, 6, 7\) of '0', got '{pool}'"
        with pytest.raises(ValueError, match=message):
            recorded(block, signals, pool)
    turned = recorded(block, signals, "mean", select=lambda output: output.transpose(1, 2))
    torch.testing.assert_close(turned, wanted.mean(2))


class Tokens(nn.Module):
    """A convolution over tokens before a layer that gives ``[B, T, p]``."""

    def __init__(self, layer):
        super().__init__()
        self.convolution, self.layer = nn.Conv1d(2, 7, 3), layer

    def forward(self, signals):
        states = self.layer(self.convolution(signals).transpose(1, 2))
        return states[0] if isinstance(states, tuple) else states


@pytest.mark.parametrize(
    "layer", [nn.Linear(7, 5), nn.LSTM(7, 5, batch_first=True), nn.LayerNorm(7)]
)
def test_tokens_after_a_convolution(layer):
    """There are as many tokens as the convolution has channels, 7."""
    block = Tokens(layer).eval()
    signals = torch.randn(3, 2, 9, generator=torch.Generator().manual_seed(0))
    wanted = block(signals).detach()
    torch.testing.assert_close(recorded(block, signals, "mean"), wanted.mean(1))
