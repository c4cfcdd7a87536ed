"""`compare`: every batch once to both models, and a grid with names."""

import sys
from dataclasses import replace

import matplotlib
import numpy as np
import pandas
import pytest
import torch
from matplotlib import pyplot
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from simcore import MinibatchCKA, cka_grid, compare, compare_layers, hsic_grid, stats, svcca_grid
from support.nets import ConvNet, Encoder, images, seeded, taped, token_batches

matplotlib.use("agg")

LAYERS = ["stem", "layer?"]
POOL = {"pool": "spatial-mean"}


@pytest.fixture(scope="module")
def nets():
    return seeded(ConvNet, 6), seeded(ConvNet, 5)


def grid(nets, loader, function=cka_grid, **options):
    layers = [list(taped(net, LAYERS, loader, **POOL).layers().values()) for net in nets]
    return function(*layers, **options)


def test_grid_and_names(nets):
    result = compare(*nets, images(), LAYERS, **POOL)
    assert torch.equal(result.values, grid(nets, images()))
    assert result.rows == result.columns == ("stem", "layer1", "layer2")
    assert (result.measure, result.n) == ("cka (biased)", 15)
    assert not any(module._forward_hooks for net in nets for module in net.modules())


def test_one_model(nets):
    result = compare(nets[0], None, images(), LAYERS, **POOL)
    assert torch.equal(result.values, grid(nets[:1], images()))
    assert result.rows == result.columns


def test_models_that_share_modules(nets):
    whole = nn.Sequential(*nets[0].layer1).eval()
    loader = [nets[0].stem(batch).detach() for batch in images()]
    result = compare(whole, nets[0].layer1, loader, "1", pool="positions")
    assert torch.equal(result.values, torch.ones(1, 1, dtype=torch.float64))
    assert result.n == 15 * 64


def test_measures_and_options(nets):
    got = compare(*nets, images(), LAYERS, measure="svcca", truncation=0.9, **POOL)
    assert torch.equal(got.values, grid(nets, images(), svcca_grid, truncation=0.9))
    got = compare(*nets, images(), LAYERS, measure=hsic_grid, **POOL)
    assert torch.equal(got.values, grid(nets, images(), hsic_grid))
    assert got.measure == "hsic_grid (biased)"
    both = compare(*nets, iter(images()), LAYERS, measure=["svcca", hsic_grid], **POOL)
    assert list(both) == ["svcca", "hsic_grid"]
    assert torch.equal(both["hsic_grid"].values, got.values)
    got = compare(*nets, images(), LAYERS, measure=lambda x, y: np.zeros((len(x), len(y))), **POOL)
    assert torch.equal(got.values, torch.zeros(3, 3, dtype=torch.float64))


def test_a_shuffled_loader_gives_both_models_the_same_rows(nets):
    data = TensorDataset(torch.cat(images()), torch.arange(15))
    loader = DataLoader(data, batch_size=4, shuffle=True)
    result = compare(nets[0], nets[0], loader, LAYERS, **POOL)
    assert torch.equal(result.values.diagonal(), torch.ones(3, dtype=torch.float64))
    assert result.n == 15


def test_a_loader_is_read_once(nets):
    read = []

    def loader():
        for number, batch in enumerate(images()):
            read.append(number)
            yield batch

    compare(*nets, loader(), LAYERS, **POOL)
    assert read == [0, 1, 2]


@pytest.mark.parametrize("one", [True, False])
def test_streaming(nets, one):
    sides = nets[:1] if one else nets
    metric = MinibatchCKA()
    for batch in images():
        metric.update(*(list(taped(n, LAYERS, [batch], **POOL).layers().values()) for n in sides))
    result = compare(nets[0], None if one else nets[1], images(), LAYERS, streaming=True, **POOL)
    assert torch.equal(result.values, metric.compute())
    assert (result.measure, result.n) == ("cka (minibatch)", 15)


def test_streaming_joins_batches_that_are_too_small(nets):
    whole = torch.cat(images())
    with pytest.warns(UserWarning, match="the last 3 rows are left out") as caught:
        got = compare(*nets, whole.split(2), LAYERS, streaming=True, **POOL)
    assert caught[0].filename == __file__
    wanted = compare(*nets, whole[:12].split(4), LAYERS, streaming=True, **POOL)
    torch.testing.assert_close(got.values, wanted.values)
    assert got.n == wanted.n == 12


def test_streaming_keeps_one_batch(nets):
    rows = sum(5 * width * 4 for width in (6, 6, 12)) + 5 * 12 * 4
    compare(nets[0], None, images(9), LAYERS, streaming=True, max_memory=rows, **POOL)
    with pytest.raises(ValueError, match="max_memory"):
        compare(nets[0], None, images(9), LAYERS, max_memory=rows, **POOL)


class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 7)

    def forward(self, x):
        return self.body(x)


def test_models_of_different_kinds(nets):
    batches = [{"images": batch, "flat": batch.flatten(1)} for batch in images()]
    calls = (lambda model, b: model(b["images"]), lambda model, b: model(b["flat"]))
    other = seeded(Other)
    result = compare(
        nets[0], other, batches, "stem", modules_b="body", pool="positions",
        pool_b=lambda rows: rows.repeat_interleave(64, 0), forward=calls,
    )  # fmt: skip
    assert (result.rows, result.columns, result.n) == (("stem",), ("body",), 15 * 64)
    result = compare(
        nets[0], other, batches, "head", modules_b="body", select_b=lambda rows: rows[:, :3],
        forward=calls,
    )  # fmt: skip
    assert result.values.shape == (1, 1)


class Device(nn.Module):
    """Stands on a device where nothing is computed."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, device="meta"))


class Moving:
    def __init__(self):
        self.devices = []

    def to(self, device):
        self.devices.append(device.type)
        return self


def test_batches():
    from simcore.recording.batches import call, moved

    encoder, net = seeded(Encoder), seeded(ConvNet)
    (batch,), image = token_batches(1), images(1)[0]
    wanted = encoder(**batch)["logits"]
    assert torch.equal(call(encoder, batch)["logits"], wanted)
    assert torch.equal(call(encoder, (batch["ids"],))["logits"], wanted)
    assert torch.equal(call(net, image), net(image))
    assert torch.equal(call(net, (image, torch.zeros(5))), net(image))
    assert torch.equal(call(nn.DataParallel(net), [image, torch.zeros(5)]), net(image))
    pair = nn.Bilinear(3, 3, 2)
    x = torch.randn(2, 4, 3)
    assert torch.equal(call(pair, tuple(x)), pair(*x))
    object_ = Moving()
    assert moved({"a": [object_, 3]}, torch.device("meta")) == {"a": [object_, 3]}
    assert object_.devices == ["meta"]
    assert moved((image, "text"), torch.device("meta"))[0].is_meta
    message = r"forward: wanted a function .* 2 values .*\(ids, attention_mask\) of Encoder"
    with pytest.raises(ValueError, match=message):
        call(encoder, (batch["ids"], torch.zeros(4)))


ERRORS = {
    "measure": (
        {"measure": "ckaa"},
        ValueError,
        r"measure \(did you mean 'cka'\?\): wanted 'cka', .*, got 'ckaa'$",
    ),
    "streaming": (
        {"streaming": True, "measure": "cca"},
        ValueError,
        "measure: wanted 'cka' without options for streaming=True, got 'cca'",
    ),
    "options": ({"streaming": True, "kernel": "rbf"}, ValueError, "got 'cka' with kernel"),
    "flag": ({"streaming": 1}, TypeError, "streaming: wanted True or False, got 1"),
    "three functions": ({"forward": [len] * 3}, ValueError, "forward: wanted one .* or two, got 3"),
    "no function": ({"forward": 3}, TypeError, "forward: wanted a function .* got 3"),
    "a grid of a wrong shape": (
        {"measure": lambda x, y: torch.zeros(2)},
        ValueError,
        r"measure: wanted a grid of shape \(3, 3\), got \(2,\)",
    ),
    "other rows": (
        {"pool_b": "positions"},
        ValueError,
        "modules: wanted as many rows in every layer of model_b, got 320 of 'stem' and 45 of",
    ),
    "rows of both": (
        {"pool_b": lambda states: states[1:].flatten(1)},
        ValueError,
        "loader: wanted as many rows of both models, got 5 of 'stem' in model_a and 4 of 'stem'",
    ),
    "no call": (
        {"forward": lambda model, batch: None},
        RuntimeError,
        "wanted a forward pass of the model, got none",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_messages(nets, name):
    options, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        compare(*nets, images(), LAYERS, **{**POOL, **options})


REFUSED = {
    "a name": (
        {"estimater": "unbiased"},
        TypeError,
        r"estimater \(did you mean 'estimator'\?\): wanted kernel or estimator .* 'cka', or .*pool",
    ),
    "a name of compare": (
        {"boostrap": 10},
        TypeError,
        r"boostrap \(did you mean 'bootstrap'\?\): wanted kernel .* bootstrap, .* of compare$",
    ),
    "a value": (
        {"estimator": "unbaised"},
        ValueError,
        r"got 'unbaised' \(did you mean 'unbiased'\?\)$",
    ),
    "a share": ({"measure": "svcca", "truncation": 1.5}, ValueError, "truncation: wanted a share"),
    "no descriptor": ({"measure": "descriptor"}, TypeError, "descriptor: wanted a value .* none"),
    "a metric": (
        {"measure": "knn-second-order", "metric": "inner"},
        ValueError,
        "metric: wanted 'cosine' for measure 'second-order'",
    ),
    "a function of simcore": ({"measure": hsic_grid, "kernel": "rbff"}, ValueError, "'rbf'"),
    "a function": (
        {"measure": lambda x, y: None, "power": 2},
        TypeError,
        "measure: wanted a function of two lists of layers and power options, got <lambda>",
    ),
    "a count": ({"bootstrap": 0}, ValueError, "bootstrap: wanted at least 2, got 0"),
    "no test": (
        {"measure": "imd", "permutations": 9},
        ValueError,
        "wanted a measure that compares",
    ),
    "resampled CKA": (
        {"bootstrap": 9, "precision": "high"},
        TypeError,
        "precision: wanted kernel or estimator .* or form of measure .cka.",
    ),
    "tokens": (
        {"pool": "positions", "permutations": 9},
        ValueError,
        "permutations: wanted a pool that makes one row an example, got 'positions'",
    ),
    "no measure": ({"measure": []}, ValueError, r"wanted different measures, got \[\]$"),
    "a streamed list": ({"streaming": True, "measure": ["cka"]}, ValueError, r"got \['cka'\]$"),
    "streamed statistics": (
        {"streaming": True, "bootstrap": 9},
        ValueError,
        "without options for streaming=True, got 'cka' with bootstrap",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_question_is_refused_before_the_first_batch(nets, name):
    options, kind, message = REFUSED[name]
    read = []

    def loader():
        read.append(1)
        yield from images()

    with pytest.raises(kind, match=message):
        compare(*nets, loader(), LAYERS, **{**POOL, **options})
    assert not read


def test_statistics_come_from_the_same_pass(nets):
    result = compare(
        *nets, images(), LAYERS, bootstrap=20, permutations=9, seed=3, estimator="unbiased", **POOL
    )
    x, y = [list(taped(net, LAYERS, images(), **POOL).layers().values()) for net in nets]
    interval = stats.bootstrap_ci(x, y, method="half", resamples=20, seed=3, estimator="unbiased")
    test = stats.permutation_test(x, y, permutations=9, seed=3, estimator="unbiased")
    assert torch.equal(result.low, interval.low)
    assert torch.equal(result.high, interval.high)
    assert torch.equal(result.pvalue, test.pvalue)
    assert torch.equal(result.calibrated, test.calibrated)
    frame = result.to_pandas(long=True)
    assert list(frame) == ["row", "column", "value", "low", "high", "pvalue", "calibrated"]
    row = frame.query("row == 'layer1' and column == 'layer2'").iloc[0]
    assert row["value"] == result.values[1, 2]
    assert row["pvalue"] == result.pvalue[1, 2]


def test_layers_that_have_names():
    generator = torch.Generator().manual_seed(0)
    x = {name: torch.randn(20, 4, generator=generator) for name in ("first", "second")}
    result = compare_layers(x, {"other": x["second"]}, measure="hsic", permutations=9)
    assert (result.rows, result.columns, result.n) == (("first", "second"), ("other",), 20)
    assert torch.equal(result.values, hsic_grid(x, [x["second"]]))
    assert result.pvalue.shape == (2, 1)
    assert compare_layers(x).columns == ("first", "second")
    unnamed = compare_layers(iter(x.values()))
    assert unnamed.rows == unnamed.columns == ("0", "1")
    assert torch.equal(unnamed.values, compare_layers(x).values)
    with pytest.raises(ValueError, match=r"X: wanted one \[L, n, p\] array or a list of layers"):
        compare_layers(x["first"])
    x["second"][3] = torch.nan
    with pytest.raises(ValueError, match=r"^'second' of X: wanted finite values"):
        compare_layers(x)


def test_the_first_layers_stand_at_the_bottom_of_a_plot(nets):
    result = compare(*nets, images(), LAYERS, **POOL)
    axes = result.plot(vmin=0)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["stem", "layer1", "layer2"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["stem", "layer1", "layer2"]
    bottom, top = axes.get_ylim()
    assert bottom < top
    (image,) = axes.get_images()
    assert image.origin == "lower"
    np.testing.assert_array_equal(image.get_array(), result.values.numpy())
    pyplot.close(axes.figure)


@pytest.mark.parametrize(("method", "package"), [("plot", "matplotlib"), ("to_pandas", "pandas")])
def test_a_missing_package_is_named(nets, method, package, monkeypatch):
    result = compare(*nets, images(), LAYERS, **POOL)
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    message = f"^Comparison.{method}: wanted the package {package}, found none; `pip install"
    with pytest.raises(ModuleNotFoundError, match=message):
        getattr(result, method)()


@pytest.mark.parametrize("streaming", [False, True])
def test_errors_of_a_measure_name_the_layer(nets, streaming):
    other = seeded(ConvNet, 5)
    with torch.no_grad():
        other.layer2[0].bias[3] = torch.nan
    for models, name in (((*nets[:1], other), "model_b"), ((other, None), "model_a")):
        message = rf"^'layer2' of {name}: wanted finite values, got 5 NaN or infinite of 50$"
        with pytest.raises(ValueError, match=message):
            compare(*models, images()[:1], LAYERS, streaming=streaming, **POOL)


def test_loaders(nets):
    with pytest.raises(TypeError, match=r"loader: wanted an iterable of batches, got one Tensor"):
        compare(*nets, images()[0], LAYERS, **POOL)
    with pytest.raises(TypeError, match=r"^loader: wanted an iterable of batches, got NoneType$"):
        compare(*nets, None, LAYERS, **POOL)
    with pytest.raises(ValueError, match="loader: wanted at least one batch, got none"):
        compare(*nets, [], LAYERS, **POOL)
    with pytest.raises(ValueError, match="loader: wanted at least 4 rows for streaming, got 3"):
        compare(*nets, [images()[0][:3]], LAYERS, streaming=True, **POOL)


def test_how_a_result_looks(nets):
    result = compare(*nets, images(), [*LAYERS, "layer1.0"], **POOL)
    lines = str(result).splitlines()
    assert lines[0] == "cka (biased), n = 15"
    unbiased = compare(*nets, images(), LAYERS, estimator="unbiased", **POOL)
    assert str(unbiased).splitlines()[0] == "cka (unbiased), n = 15"
    other = compare(*nets, images(), LAYERS, measure="procrustes", **POOL)
    assert str(other).splitlines()[0] == "procrustes, n = 15"
    assert lines[1].split() == ["stem", "layer1.0", "layer1", "layer2"]
    assert len({len(line) for line in lines[1:]}) == 1
    assert lines[2].split() == ["stem", *(f"{v:.3f}" for v in result.values[0].tolist())]
    names = tuple(f"model.encoder.layer.{i}.intermediate_dense" for i in (0, 1))
    header = str(replace(result, columns=names)).splitlines()[1]
    assert header.split() == [f"layer.{i}.intermediate_dense" for i in (0, 1)]
    names = tuple(f"model.encoder.layer.{i}.norm" for i in (0, 1))
    assert str(replace(result, columns=names)).splitlines()[1].split() == [
        "layer.0.norm",
        "layer.1.norm",
    ]
    frame = result.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.loc["layer1.0", "layer2"] == result.values[1, 3]
