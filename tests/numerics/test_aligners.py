"""Aligners that are fitted to float32 layers give the rows of the right map."""

import numpy as np
import pytest
import torch

from numerics.cases import RELATIVE
from numerics.contract import UNCLEAR, drawn
from simcore import align

LAYERS = (
    *("features", "six_decades", "six_decades_one_space", "breast_cancer", "collapsed"),
    *("massive_500_shared", "massive_5000_shared", "sink_10000", "sink_row_100000"),
    *("layer_norm", "rank_4", "spectrum_2", "relu_dead", "offset_1000"),
)


def linear(a, b, ridge=0.0):
    """Return the fitted rows of least squares."""
    u, s, _ = a.svd
    shares = s**2 / (s**2 + ridge) if ridge else a.kept
    return (u * shares) @ (u.T @ b.centred)


def canonical(a, b, truncation=None, weights=1.0, scale="one"):
    """Return the fitted rows of the canonical map, over the directions of the largest weights."""
    q, r = a.basis(truncation), b.basis(truncation)
    u, rho, vt = np.linalg.svd(q.T @ r, full_matrices=False)
    of_x = np.abs((q @ u).T @ a.centred).sum(1)
    order = np.argsort(-of_x)
    count = int(np.sum(np.cumsum(of_x[order]) / of_x.sum() < weights)) + 1
    keep = order[:count] if weights < 1 else order
    s = rho[keep] if scale == "rho" else 1.0
    return (q @ u[:, keep] * s) @ ((r @ vt[keep].T).T @ b.centred)


ALIGNERS = {
    "linear": (align.LinearAligner, {}, linear, {}),
    "ridge": (align.LinearAligner, {"ridge": 1.0}, linear, {"ridge": 1.0}),
    "cca": (align.CCAAligner, {}, canonical, {}),
    "cca-rho": (align.CCAAligner, {"scale": "rho"}, canonical, {"scale": "rho"}),
    "svcca": (align.SVCCAAligner, {}, canonical, {"truncation": 0.99}),
    "pwcca": (align.PWCCAAligner, {}, canonical, {"weights": 0.99}),
}


@pytest.mark.parametrize("dtype", ["float32", "widened"])
@pytest.mark.parametrize("aligner", ALIGNERS)
@pytest.mark.parametrize("name", LAYERS)
def test_maps_are_right(name, aligner, dtype, recwarn):
    x, y, a, b = drawn(name, dtype)
    fitted, options, right, own = ALIGNERS[aligner]
    found = fitted(**options).fit(x, y).transform(x).double().numpy() - np.float64(b.mean)
    warned = any(UNCLEAR.search(str(one.message)) for one in recwarn)
    lengths = np.linalg.norm(b.centred, axis=0)
    varying = lengths > 0
    errors = np.linalg.norm(found - right(a, b, **own), axis=0)[varying] / lengths[varying]
    offset = 2.0**-24 * np.abs(b.x).max(0)[varying] * a.n**0.5 / lengths[varying]  # of the result
    assert warned or np.all(errors <= RELATIVE + offset), errors.max()


@pytest.mark.parametrize("noise", [1e-3, 1e-2])
def test_nearly_equal_correlations(noise):
    """The directions to keep are among those of correlations of nearly 1."""
    x, y = drawn("rotated", n=120, p=20)[:2]
    y = y + noise * torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
    found = align.PWCCAAligner(weight_share=0.9).fit(x, y).transform(x).double()
    right = align.PWCCAAligner(weight_share=0.9).fit(x.double(), y.double()).transform(x.double())
    assert float((found - right).norm() / right.norm()) < RELATIVE


def test_equal_correlations_are_warned_of():
    x, y = drawn("rotated", n=120, p=20)[:2]
    with pytest.warns(UserWarning, match="PWCCAAligner: .* equal up to rounding"):
        align.PWCCAAligner(weight_share=0.9).fit(x, x)
    assert align.PWCCAAligner(weight_share=1).fit(x, y).correlations_.shape == (20,)
