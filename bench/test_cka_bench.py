"""pytest-benchmark suite of single functions, small enough to run often.

`make bench` enables the plugin; otherwise each function runs once, which keeps the contestants of
bench/cka.py correct.
"""

import functools

import numpy as np
import pytest
import torch

from bench import cka, formulas, harness, peer
from simcore import MinibatchCKA, cka_grid

SMALL = cka.Job(6, 256, 96, cka._linear)
TOLERATED = 1e-4  # what these formulas reach in float32

FORMULAS = {
    "gram": cka.Contestant(formulas.gram),
    "gram pairs": cka.Contestant(formulas.gram_pairs),
    "gram unbiased": cka.Contestant(formulas.gram_unbiased, estimator="unbiased"),
    "gram rbf": cka.Contestant(formulas.gram_rbf, kernel="rbf"),
    "tiled": cka.Contestant(formulas.tiled),
    "tiled small": cka.Contestant(formulas.tiled_small),
    "feature": cka.Contestant(formulas.feature),
    "feature rows": cka.Contestant(formulas.feature_rows),
    "feature chunks": cka.Contestant(functools.partial(formulas.feature_chunks, rows=100)),
    "peer features": cka.Contestant(peer.from_features, estimator="unbiased"),
    "peer hooks": cka.Contestant(peer.through_hooks, estimator="unbiased"),
    "ours": cka.ours(),
    "ours unbiased": cka.ours(estimator="unbiased"),
    "ours rbf": cka.ours(kernel="rbf"),
}


@pytest.fixture(scope="module")
def x():
    torch.set_num_threads(harness.THREADS)
    return SMALL.data()


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name, x, benchmark):
    if name.startswith("peer"):
        pytest.importorskip("cka", reason="the peer is installed by make bench")
    contestant = FORMULAS[name]
    grid = benchmark(contestant.run, x)
    np.testing.assert_allclose(torch.as_tensor(grid), cka.exact(x, contestant), atol=TOLERATED)


def test_without_the_peer_the_others_compete(monkeypatch, capsys):
    monkeypatch.setattr(peer.importlib.util, "find_spec", lambda name: None)
    peer.is_installed.cache_clear()
    try:
        for contestants in (cka._linear, cka._unbiased):
            names = list(contestants())
            assert "ours" in names
            assert not [name for name in names if "pytorch-cka" in name]
        assert capsys.readouterr().out.count("\n") == 1
    finally:
        peer.is_installed.cache_clear()


@pytest.mark.parametrize("method", ["gram", "feature"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_grid(dtype, method, x, benchmark):
    assert benchmark(cka_grid, x.to(dtype), method=method).isfinite().all()


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_training_step(estimator, x, benchmark):
    layers = [layer.clone().requires_grad_() for layer in x]

    def step():
        return torch.autograd.grad(cka_grid(layers, estimator=estimator).sum(), layers)

    assert all(grad.isfinite().all() for grad in benchmark(step))


def test_minibatch_update(x, benchmark):
    metric = MinibatchCKA()
    benchmark(metric.update, x)
    assert metric.compute().isfinite().all()
