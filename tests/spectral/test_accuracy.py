"""PWCCA's weights and truncations, beyond what `tests/grid` asks of every measure."""

import numpy as np
import pytest
import torch

from simcore import reference, svcca_grid
from support import tolerance
from support.cases import DTYPES, Case, exact
from support.measure_table import PWCCA, PWCCA_TRUNCATED, SVCCA

# n - 1 independent columns are warned about; here the values matter.
pytestmark = pytest.mark.filterwarnings("ignore:.*canonical correlations are all 1")


@pytest.mark.parametrize("measure", [PWCCA, PWCCA_TRUNCATED], ids=str)
@pytest.mark.parametrize("widths", [(30, 20), (20, 30), (30, 30)], ids=str)
def test_weights_of_either_side_in_float32(widths, measure):
    """Wider on the left, on the right, and square: three ways to the canonical directions."""
    x = measure.layers(Case(200, 3.0, widths=widths), torch.float32)
    y = measure.layers(Case(200, 3.0, widths=widths), torch.float32, seed=1)
    for other in (None, y):
        tolerance.assert_measure(measure(x, other), measure.twin(x, other), torch.float32)


def test_weights_where_small_correlations_would_be_rounding():
    """Correlations below 1e-3 of the largest take the singular value decomposition."""
    q = np.linalg.qr(np.random.default_rng(0).standard_normal((200, 8)))[0]
    q = np.linalg.qr(q - q.mean(axis=0))[0]
    rho = np.array([0.9, 0.3, 0.1, 1e-4])
    x = torch.from_numpy(q[:, :4] * [1.0, 2.0, 3.0, 4.0]).float()
    y = torch.from_numpy(q[:, :4] * rho + q[:, 4:] * np.sqrt(1 - rho**2)).float()
    for pair in ([x], [y]), ([y], [x]):
        tolerance.assert_measure(PWCCA(*pair), PWCCA.twin(*pair), torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_count_for_every_layer(dtype):
    """Of X, then of Y: the twin is given all layers as one side."""
    x = SVCCA.layers(Case(60, 10.0, widths=(7, 20, 9)), dtype)
    y = SVCCA.layers(Case(60, widths=(12, 5)), dtype, seed=1)
    counts = [2, 11, 4, 6, 99]
    want = reference.svcca_grid(exact(x + y), truncation=counts)
    tolerance.assert_measure(svcca_grid(x, truncation=counts[:3]), want[:3, :3], dtype)
    tolerance.assert_measure(svcca_grid(x, y, truncation=counts), want[:3, 3:], dtype)
    tolerance.assert_measure(svcca_grid(x, y, truncation=tuple(counts)), want[:3, 3:], dtype)


@pytest.mark.parametrize("truncation", [1, 2, 999, 0.3, 0.5, 1.0])
def test_truncations(truncation):
    x = SVCCA.layers(Case(60, 10.0, widths=(7, 20, 9)))
    want = reference.svcca_grid(exact(x), truncation=truncation)
    tolerance.assert_measure(svcca_grid(x, truncation=truncation), want, torch.float64)
