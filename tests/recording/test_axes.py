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


SIGNALS = torch.randn(3, 2, 9, generator=torch.Generator().manual_seed(0))
AFTER = {
    "ReLU": nn.ReLU(),
    "GELU": nn.GELU(),
    "Dropout": nn.Dropout(),
    "Identity": nn.Identity(),
    "padding": nn.ConstantPad1d(1, 0.0),
    "BatchNorm1d": nn.BatchNorm1d(7),
    "GroupNorm": nn.GroupNorm(7, 7),
    "pooling": nn.LPPool1d(2, 2),
}


@pytest.mark.parametrize("name", AFTER)
def test_layers_after_a_convolution_know_its_axes(name):
    """Though there are as many positions, 7, as channels."""
    model = seeded(nn.Sequential, nn.Conv1d(2, 7, 3), nn.Sequential(AFTER[name], nn.Tanh()))
    after = model[1][0](model[0](SIGNALS)).detach()
    for module, wanted in (("1.0", after), ("1.1", after.tanh()), ("1", after.tanh())):
        got = taped(model, module, [SIGNALS], pool="spatial-mean").layers()[module]
        torch.testing.assert_close(got, wanted.mean(2))
        with pytest.raises(
            ValueError, match=f"wanted 'spatial-mean', .* of '{module}', got 'mean'"
        ):
            taped(model, module, [SIGNALS], pool="mean", mask=False)


class Functions(nn.Module):
    """Between a convolution and its last module, functions change the states."""

    def __init__(self, between, channels=6):
        super().__init__()
        self.conv, self.last, self.between = nn.Conv1d(2, channels, 3), nn.Dropout(), between

    def forward(self, signals):
        return self.last(self.between(self.conv(signals)))


def test_axes_by_the_width_of_the_layer_before():
    model = seeded(Functions, lambda states: nn.functional.max_pool1d(states.relu(), 2))
    wanted = model(SIGNALS).detach()  # [3, 6, 3]
    got = taped(model, "last", [SIGNALS], pool="spatial-mean").layers()["last"]
    torch.testing.assert_close(got, wanted.mean(2))
    model = seeded(Functions, lambda states: states.transpose(1, 2) * 2)
    wanted = model(SIGNALS).detach()  # [3, 7, 6]
    got = taped(model, "last", [SIGNALS], pool="mean", mask=False).layers()["last"]
    torch.testing.assert_close(got, wanted.mean(1))


@pytest.mark.parametrize(
    ("between", "channels"),
    [
        (lambda states: states.relu(), 7),  # [3, 7, 7]
        (lambda states: torch.cat([states, states], 1), 6),  # [3, 12, 7]
    ],
)
def test_axes_that_nothing_shows_are_refused(between, channels):
    model = seeded(Functions, between, channels)
    wanted = model(SIGNALS).detach()
    message = r"select: wanted a function for the output \(3, .*, 7\) of 'last', got None; .*before"
    for pool in ("mean", "spatial-mean", "tokens", "positions"):
        with pytest.raises(ValueError, match=message):
            taped(model, "last", [SIGNALS], pool=pool, mask=False)
    assert torch.equal(
        taped(model, "last", [SIGNALS], pool="flatten").layers()["last"], wanted.flatten(1)
    )
    for pool, axis in (("mean", 1), ("spatial-mean", 2)):
        options = {"pool": pool, "mask": False, "select": lambda output: output}
        got = taped(model, "last", [SIGNALS], **options).layers()["last"]
        torch.testing.assert_close(got, wanted.mean(axis))


def test_a_square_output_that_a_function_turns():
    model = seeded(nn.Sequential, nn.Conv1d(2, 7, 3))  # [3, 7, 7]
    options = {"mask": False, "select": lambda output: output.transpose(1, 2)}
    got = taped(model, "0", [SIGNALS], pool="mean", **options).layers()["0"]
    torch.testing.assert_close(got, model(SIGNALS).detach().mean(2))


def test_tokens_beside_convolutions_stay_tokens():
    """The states of a block with a convolution of another width inside, and what follows it."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.enter = nn.LayerNorm(4), nn.Linear(4, 8)
            self.conv, self.leave = nn.Conv1d(8, 8, 3, padding=1), nn.Linear(8, 4)
            self.drop, self.act = nn.Dropout(), nn.SiLU()

        def forward(self, x):
            inner = self.act(self.conv(self.enter(self.norm(x)).transpose(1, 2)) + 1)
            return self.drop(x + self.leave(inner.transpose(1, 2)))

    model = nn.Sequential(nn.Embedding(9, 4), Block(), Block()).eval()
    ids = torch.randint(9, (3, 5), generator=torch.Generator().manual_seed(0))
    names = ["0", "1.norm", "1.enter", "1.leave", "1.drop", "1", "2.norm", "2.drop", "2"]
    layers = taped(model, names, [ids], pool="mean", mask=False).layers()
    torch.testing.assert_close(layers["2"], model(ids).detach().mean(1))
    assert torch.equal(layers["1"], layers["1.drop"])
    got = taped(model, "2.act", [ids], pool="spatial-mean").layers()["2.act"]
    assert got.shape == (3, 8)
