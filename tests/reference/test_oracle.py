"""Agreement with values that other people's implementations gave (tests/oracle/README.md)."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_map

import simcore
from simcore import reference
from support import tolerance
from support.stand_in import CUDA, stand_in_device

ORACLE = Path(__file__).parents[1] / "oracle"
FILES = ("wu2020_a", "wu2020_b")


@dataclass(frozen=True)
class Measure:
    """A grid function and what the oracle calls its values."""

    function: str
    options: dict = field(default_factory=dict)
    agreement: float = tolerance.ORACLE
    inputs: str = "layers"
    truncated: str | None = None  # the key whose `kept` counts to pass


MEASURES = {
    "cka_linear_biased": Measure("cka_grid"),
    "cka_linear_biased_gram": Measure("cka_grid"),
    "cka_linear_unbiased": Measure("cka_grid", {"estimator": "unbiased"}),
    "cka_rbf_biased_bandwidth1": Measure("cka_grid", {"kernel": "rbf"}, tolerance.ORACLE_MEDIAN),
    "neuronsim": Measure("neuronsim_grid"),
    "mixedsim": Measure("mixedsim_grid"),
    "cca_mean_google": Measure("cca_grid", agreement=tolerance.ORACLE_GOOGLE),
    "cca.mean": Measure("svcca_grid", truncated="cca"),
    "cca.pwcca": Measure("pwcca_grid", truncated="cca"),
    "svcca99.mean": Measure("svcca_grid", truncated="svcca99"),
    "svcca99.pwcca": Measure("pwcca_grid", truncated="svcca99"),
    "svcca90.mean": Measure("svcca_grid", truncated="svcca90"),
    "svcca90.pwcca": Measure("pwcca_grid", truncated="svcca90"),
    "attention_frobenius": Measure("attention_grid", {"measure": "frobenius"}, inputs="attention"),
    "attention_pearson": Measure("attention_grid", {"measure": "pearson"}, inputs="attention"),
    "attention_js": Measure("attention_grid", {"measure": "js"}, inputs="attention"),
    "attention_distributed_cka": Measure("cka_grid", inputs="distributed"),
    "attention_distributed_cca.mean": Measure("cca_grid", inputs="distributed"),
    "attention_distributed_cca.pwcca": Measure("pwcca_grid", inputs="distributed"),
}
CASES = [(implementation, key) for implementation in ("twin", "op", "device") for key in MEASURES]


def load(name):
    """The inputs of one oracle file by kind, and its values."""
    data = np.load(ORACLE / f"{name}.npz")
    layers = [data[key] for key in sorted(data.files) if key.startswith("layer_")]
    attention = {}
    for key in data.files:
        if key.startswith("attention_"):
            layer, sentence = map(int, key.split("_")[1:])
            attention.setdefault(layer, {})[sentence] = data[key]
    attention = [[attention[i][s] for s in sorted(attention[i])] for i in sorted(attention)]
    inputs = {"layers": layers, "attention": attention, "distributed": attention}
    return inputs, json.loads((ORACLE / f"{name}.json").read_text())


def expected(values, key):
    """One grid of the oracle; null (not computed) becomes nan."""
    for part in key.split("."):
        values = values[part]
    return np.array(values, dtype=np.float64)


def on_device(grid, x, options):
    """Return the grid by operations of torch alone, as on a device without kernels."""
    with stand_in_device(kernels=False):
        moved = tree_map(lambda array: torch.from_numpy(np.asarray(array)).to(CUDA), x)
        return grid(moved, **options).values.numpy()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("implementation", "key"), CASES)
def test_agrees_with_other_implementations(implementation, key, name):
    inputs, values = load(name)
    measure = MEASURES[key]
    x, options = inputs[measure.inputs], dict(measure.options)
    want = expected(values, key)
    if measure.truncated:
        kept = values[measure.truncated]["kept"]
        # Their rule may keep no component at all, which they report as nan.
        options["truncation"] = [max(count, 1) for count in kept]
        want[np.array(kept) == 0] = want[:, np.array(kept) == 0] = np.nan
    computed = ~np.isnan(want)
    assert want.shape == (len(x), len(x))
    assert computed.any()
    module = reference if implementation == "twin" else simcore
    if measure.inputs == "distributed":
        x = [module.distributed_attention(layer) for layer in x]
    grid = getattr(module, measure.function)
    got = on_device(grid, x, options) if implementation == "device" else grid(x, **options)
    np.testing.assert_allclose(got[computed], want[computed], rtol=0, atol=measure.agreement)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("key", [key for key in MEASURES if key.startswith("cka_")])
def test_cross_grids_are_blocks_of_the_oracle(key, name):
    inputs, values = load(name)
    measure = MEASURES[key]
    x = inputs["layers"]
    got = simcore.cka_grid(x[:2], x[1:], **measure.options)
    np.testing.assert_allclose(got, expected(values, key)[:2, 1:], rtol=0, atol=measure.agreement)
