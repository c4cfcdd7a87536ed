"""Nuclear norms of cross-products, which the means of canonical correlations are made of."""

import numpy as np
import pytest
import torch

from simcore import reference
from support import tolerance
from support.cases import DTYPES, Case, exact, layers

ops = torch.ops.simcore


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nuclear_norms_and_frobenius_norms(dtype):
    x, y = layers(Case(60, 3.0, widths=(9, 1, 24)), dtype), layers(Case(60, widths=(5,)), dtype)
    centred = [reference.center(layer) for layer in exact(x)]
    others = [reference.center(layer) for layer in exact(y)]
    for right, partners in (([], centred), (y, others)):
        xy, norm_x, norm_y = ops.nuclear_norms(x, right, 0)
        want_x = np.array([np.linalg.norm(c) for c in centred])
        want_y = np.array([np.linalg.norm(c) for c in partners])
        want = [[np.linalg.svd(a.T @ b, compute_uv=False).sum() for b in partners] for a in centred]
        scale = want_x[:, None] * want_y
        tolerance.assert_measure(xy / torch.from_numpy(scale), want / scale, dtype)
        tolerance.assert_measure(norm_x / torch.from_numpy(want_x), np.ones(3), dtype)
        tolerance.assert_measure(norm_y / torch.from_numpy(want_y), np.ones(len(want_y)), dtype)
