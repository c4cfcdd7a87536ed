"""Lanczos iterations of `rsm_difference_grid`: their checks, and what follows where they fail."""

import numpy as np
import pytest
import torch

from simcore import _spectral_norms, rsm_difference_grid
from simcore._spectral_norms import TOLERANCE, _largest, _norms
from support.cases import DTYPES

GENERATOR = torch.Generator().manual_seed(0)


def symmetric(n, values, dtype):
    """A matrix with these eigenvalues, and zeros."""
    q, _ = torch.linalg.qr(torch.randn(n, n, generator=GENERATOR, dtype=torch.float64))
    spectrum = torch.zeros(n, dtype=torch.float64)
    spectrum[: len(values)] = torch.tensor(values, dtype=torch.float64)
    return ((q * spectrum) @ q.T).to(dtype)


SPECTRA = {
    "one": [3.0],
    "negative": [-3.0, 2.9],
    "both ends equal": [2.0, -2.0],
    "a cluster": [1.0, 1 - 1e-3, 1 - 2e-3, -0.99],
    "many of one value": [1.0] * 40,
    "a slow decay": list(np.linspace(1, 0.5, 80)),
    "a flat bulk": list(np.linspace(-1, 1, 100)),
    "none": [],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SPECTRA)
def test_spectra(name, dtype):
    """x = E + y: the difference has the wanted spectrum, and y is another symmetric matrix."""
    n, values = 120, SPECTRA[name]
    y = symmetric(n, [1.0, 0.3], dtype)
    x = symmetric(n, values, dtype) + y
    want = float(torch.linalg.eigvalsh(x.double() - y.double()).abs().max())
    other = 2 * y
    both = _norms(torch.stack([x, other]), torch.stack([y, x]))
    own = _norms(torch.stack([x, y, other]), None)
    bound = 20 * TOLERANCE[dtype] * max(want, 1.0)
    assert abs(float(both[0, 0]) - want) <= bound
    assert abs(float(own[0, 1]) - want) <= bound
    assert float(both[0, 1]) <= bound
    assert torch.equal(own, own.T)
    assert not own.diagonal().any()


def test_a_pair_that_does_not_end_takes_all_eigenvalues(monkeypatch):
    layers = torch.randn(3, 50, 4, generator=GENERATOR, dtype=torch.float64)
    want = rsm_difference_grid(layers, norm="spectral")
    asked = []
    exact = torch.linalg.eigvalsh
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda m: asked.append(1) or exact(m))
    rsm_difference_grid(layers, norm="spectral")
    assert not asked
    monkeypatch.setattr(_spectral_norms, "STEPS", 2)
    got = rsm_difference_grid(layers, norm="spectral")
    assert len(asked) == 3
    np.testing.assert_allclose(got, want, rtol=1e-10)


def test_an_end_that_could_grow_is_not_certain():
    """The largest Ritz value is known, and the residual at the other end exceeds it."""
    alpha = torch.tensor([[2.0, -1.0]], dtype=torch.float64)
    for last, certain in ((1e-14, True), (3.0, False)):
        beta = torch.tensor([[1e-14, last]], dtype=torch.float64)
        found, known = _largest(alpha, beta, 1e-6)
        assert found.item() == 2.0
        assert known.item() is certain


@pytest.mark.parametrize("count", [1, 2, 5])
def test_blocks_of_layers_change_nothing(count):
    """The least memory holds two distance matrices."""
    x = list(torch.randn(5, 60, 4, generator=GENERATOR))
    y = list(torch.randn(count, 60, 9, generator=GENERATOR))
    least = (3 * 60 * 60 + 60 * _spectral_norms.VECTORS) * 4 + 3 * 8 * 60 * 60
    for sides in ((x,), (x, y), (y, x)):
        whole = rsm_difference_grid(*sides, norm="spectral")
        for limit in (least, 2 * least):
            part = rsm_difference_grid(*sides, norm="spectral", max_memory=limit)
            np.testing.assert_allclose(part, whole, rtol=1e-6)
    with pytest.raises(ValueError, match=r"max_memory: wanted at least .* two distance"):
        rsm_difference_grid(x, norm="spectral", max_memory=least - 1)


@pytest.mark.parametrize("n", [2, 3, 7])
def test_few_rows(n):
    x = list(torch.randn(3, n, 4, generator=GENERATOR, dtype=torch.float64))
    d = [torch.cdist(a, a, compute_mode="donot_use_mm_for_euclid_dist") for a in x]
    want = [[float(torch.linalg.eigvalsh(a - b).abs().max()) for b in d] for a in d]
    np.testing.assert_allclose(rsm_difference_grid(x, norm="spectral"), want, atol=1e-10)
