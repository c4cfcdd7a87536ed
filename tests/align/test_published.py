"""The training and the flow of Ren et al.'s code, against plain torch; linear maps by descent."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from simcore.align import REN2023, GradientLinearAligner, INNAligner, LinearAligner
from simcore.align.neural import PairedCouplings, PairedFlow
from support.published import published_loop, untrained
from support.tolerance import ALIGNED, FLOAT64_LINEAR_MAP, INVERSE_ABSOLUTE, max_error
from support.trained import trained


def layers(count=1, n=48, p=5, q=5, seed=0):
    """Rows of several layers of two models, ``[count, n, p]`` and ``[count, n, q]``, float64."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, n, p, generator=generator, dtype=torch.float64) + 1
    noise = 0.1 * torch.randn(count, n, q, generator=generator, dtype=torch.float64)
    return x, x @ torch.randn(p, q, generator=generator, dtype=torch.float64) + noise


def interleaved(rows, batch):
    """Batches of ``[layers, n, p]`` one after the other, each with the layers side by side."""
    return torch.cat([part.flatten(0, 1) for part in rows.split(batch, 1)])


@pytest.mark.parametrize("count", [1, 3], ids=["a map a layer", "a map of three layers"])
def test_the_published_training_of_a_linear_map(count):
    x, y = layers(count)
    params = {**REN2023["linear-gd"], "max_steps": 40 * count, "batch_size": 8, "group": count}
    params["learning_rate"] = 1e-2
    aligner = GradientLinearAligner(**trained(**params, seed=3))
    sides = interleaved(x, 8), interleaved(y, 8)
    plain = untrained(*sides, **params, seed=3)
    start = plain(x[0]).detach()
    published_loop(plain, x, y, steps=40, batch=8, rate=1e-2)
    found = aligner.fit(*sides).transform(x[0])
    assert max_error(found, plain(x[0]).detach()) < ALIGNED
    assert max_error(found, start) > 0.1
    log = aligner.log_
    assert (log.stopped, log.heldout, log.best_epoch) == ("steps", (), len(log.train))


def test_weights_of_the_published_start_are_xaviers():
    x, y = layers(p=1000, q=500, n=4)
    params = {**REN2023["linear-gd"], "max_steps": 1, "learning_rate": 1e-12}
    network = GradientLinearAligner(**trained(**params)).fit(x[0], y[0]).network_
    for weights, variance in ((network.weight, 2 / 1500), (network.bias, 2 / 501)):
        sampling = 4 * math.sqrt(2 / weights.numel())
        assert abs(float(weights.detach().square().mean()) / variance - 1) < sampling


def test_the_published_flow_is_two_couplings_with_shared_networks():
    torch.manual_seed(0)
    block = PairedCouplings(6, 24, depth=2, activation="selu", batch=1).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = torch.randn(9, 6, dtype=torch.float64)

    def network(mlp, rows):
        for layer in mlp.trunk:
            rows = torch.selu(rows @ layer.weight[0] + layer.bias[0])
        return rows @ mlp.head.weight[0] + mlp.head.bias[0]

    wanted = x.clone()
    for kept, changed in (([0, 2, 4], [1, 3, 5]), ([1, 3, 5], [0, 2, 4])):
        seen = torch.zeros_like(wanted)
        seen[:, kept] = wanted[:, kept]
        factor = torch.exp(torch.tanh(network(block.log_scale, seen)))
        moved = wanted * factor + network(block.shift, seen)
        wanted[:, changed] = moved[:, changed]
    flow = PairedFlow(block)
    assert max_error(flow(x[None])[0], wanted) < FLOAT64_LINEAR_MAP
    assert max_error(flow.inverse(wanted[None])[0], x) < INVERSE_ABSOLUTE[torch.float64]


def test_the_published_flow_is_undone_after_training():
    x, y = layers()
    params = {**REN2023["inn"], "max_steps": 60, "batch_size": 16, "learning_rate": 1e-3}
    aligner = INNAligner(**trained(**params)).fit(x[0], y[0])
    assert aligner.network_[0].shift.trunk[0].weight.shape == (1, 5, 20)
    back = aligner.inverse_transform(aligner.transform(x[0]))
    assert max_error(back, x[0]) < INVERSE_ABSOLUTE[torch.float64] * float(x.abs().max())
    assert aligner.log_.train[-1] < aligner.log_.train[0]


def test_without_xavier_the_pair_starts_at_the_identity():
    x, y = layers()
    one_step = {"max_steps": 1, "learning_rate": 1e-12, "normalize": False}
    aligner = INNAligner(**trained(block="pair", hidden=8, validation_share=0.0, **one_step)).fit(
        x[0], y[0]
    )
    assert max_error(aligner.transform(x[0]), x[0]) < ALIGNED


def test_gradient_descent_comes_close_to_least_squares():
    x, y = (side[0] for side in layers(n=400, q=3))
    best = LinearAligner().fit(x, y).errors(x, y)
    aligner = GradientLinearAligner(**trained(learning_rate=3e-2)).fit(x, y)
    found = aligner.errors(x, y)
    assert best.mse < found.mse < 1.05 * best.mse
    predicted = x @ aligner.coef_ + aligner.intercept_
    assert max_error(aligner.transform(x), predicted) < FLOAT64_LINEAR_MAP
    assert max_error(aligner.inverse_transform(predicted) @ aligner.coef_, x @ aligner.coef_) < (
        FLOAT64_LINEAR_MAP
    )


def test_published_training_leaves_the_linear_map_near_its_start():
    x, y = layers(n=640, p=16, q=16)
    params = REN2023["linear-gd"]
    assert params["training"].learning_rate / (1 - params["training"].decay) == pytest.approx(1e-4)
    start, end = (
        GradientLinearAligner(**trained(**{**params, "max_steps": steps})).fit(x[0], y[0]).coef_
        for steps in (1, 3000)
    )
    moved = (end - start).abs()
    assert 1e-5 < float(moved.max()) < 1.1e-4
    assert np.isclose(float(start.std()), math.sqrt(2 / 32), rtol=0.2)


def test_a_nan_loss_without_heldout_rows_keeps_the_last_finite_state():
    x, y = (side[0].float() for side in layers())
    huge = y * 1e25
    params = {"validation_share": 0.0, "normalize": False, "optimizer": "adam", "max_epochs": 2}
    with pytest.warns(UserWarning, match="loss became NaN or infinite in epoch 1"):
        aligner = GradientLinearAligner(**trained(**params)).fit(x, huge)
    assert (aligner.log_.stopped, aligner.log_.best_epoch) == ("nan", 0)
    assert bool(torch.isfinite(aligner.transform(x)).all())
