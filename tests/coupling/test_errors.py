"""Every error message of the invertible networks and their operator once."""

import numpy as np
import pytest
import torch

from simcore._ops.coupling import affine_coupling, affine_coupling_backward
from simcore.nn import AffineCoupling, BatchedMLP, CouplingINN
from support.bad_inputs import assert_refused

ONE, THREE = CouplingINN(6, 2, 4), CouplingINN(6, 2, 4, batch=3)
X, PARAMS = torch.ones(5, 4), torch.ones(5, 8)
ROWS = torch.ones(5)

# name: (function, arguments, options, error, every word its message has to hold)
CASES = {
    "dim too small": (CouplingINN, (1, 2, 4), {}, ValueError, "dim 2 1"),
    "dim no integer": (CouplingINN, (6.0, 2, 4), {}, TypeError, "dim integer 6.0"),
    "no blocks": (CouplingINN, (6, 0, 4), {}, ValueError, "n_blocks 1 0"),
    "no width": (CouplingINN, (6, 2, 0), {}, ValueError, "hidden 1 0"),
    "no batch": (CouplingINN, (6, 2, 4, 0), {}, ValueError, "batch 1 0"),
    "batch a boolean": (CouplingINN, (6, 2, 4, True), {}, TypeError, "batch integer True"),
    "no depth": (CouplingINN, (6, 2, 4), {"depth": 0}, ValueError, "depth 1 0"),
    "activation": (
        CouplingINN,
        (6, 2, 4),
        {"activation": "step"},
        ValueError,
        "activation gelu step",
    ),
    "mixing": (CouplingINN, (6, 2, 4), {"mixing": "swap"}, ValueError, "mixing permutation swap"),
    "clamp zero": (AffineCoupling, (6, 4), {"clamp": 0}, ValueError, "clamp 0 40"),
    "clamp too large": (AffineCoupling, (6, 4), {"clamp": 41}, ValueError, "clamp 40 41"),
    "clamp NaN": (AffineCoupling, (6, 4), {"clamp": float("nan")}, ValueError, "clamp 40 nan"),
    "coupling of one column": (AffineCoupling, (1, 4), {}, ValueError, "dim 2 1"),
    "no inputs": (BatchedMLP, (0, 4, 2), {}, ValueError, "in_features 1 0"),
    "no outputs": (BatchedMLP, (3, 4, 0), {}, ValueError, "out_features 1 0"),
    "numpy rows": (ONE, (np.ones((5, 6)),), {}, TypeError, "x tensor ndarray"),
    "other dtype": (ONE, (torch.ones(5, 6).double(),), {}, TypeError, "x float32 float64"),
    "too few columns": (ONE, (torch.ones(5, 4),), {}, ValueError, "x n 6 5 4"),
    "a batch for one map": (ONE, (torch.ones(3, 5, 6),), {}, ValueError, "x n 6 3 5"),
    "one row alone": (ONE, (torch.ones(6),), {}, ValueError, "x n 6"),
    "no batch for three maps": (THREE, (torch.ones(5, 6),), {}, ValueError, "x 3 n 6 5"),
    "another batch": (THREE, (torch.ones(2, 5, 6),), {}, ValueError, "x 3 n 6 2 5"),
    "inverse": (ONE.inverse, (torch.ones(5, 4),), {}, ValueError, "y n 6 5 4"),
    "log_abs_det": (ONE.log_abs_det, (torch.ones(5, 4),), {}, ValueError, "x n 6 5 4"),
    "coupling": (AffineCoupling(6, 4), (torch.ones(5, 4),), {}, ValueError, "x n 6 5 4"),
}
# What only a direct call of the operators can get wrong.
DIRECT = {
    "x of one axis": (affine_coupling, (X[0], PARAMS[0], 2.0, False), ValueError, "x n k 4"),
    "params too narrow": (affine_coupling, (X, X, 2.0, False), ValueError, "params 5 8 4"),
    "params of other rows": (
        affine_coupling,
        (X, PARAMS[:3], 2.0, False),
        ValueError,
        "params 5 8 3",
    ),
    "params of a batch": (
        affine_coupling,
        (X, PARAMS[None], 2.0, True),
        ValueError,
        "params 1 5 8",
    ),
    "clamp": (affine_coupling, (X, PARAMS, 0.0, False), ValueError, "clamp 40 0"),
    "large clamp": (affine_coupling, (X, PARAMS, 100.0, False), ValueError, "clamp 40 100"),
    "NaN clamp": (affine_coupling, (X, PARAMS, float("nan"), False), ValueError, "clamp 40 nan"),
    "integers": (affine_coupling, (X.int(), PARAMS, 2.0, False), TypeError, "floating Int"),
    "grad": (
        affine_coupling_backward,
        (X[:3], ROWS, X, PARAMS, 2.0, False),
        ValueError,
        "grad 5 4 3",
    ),
    "grad_log_det": (
        affine_coupling_backward,
        (X, X, X, PARAMS, 2.0, False),
        ValueError,
        "grad_log_det 5 4",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    assert_refused(*CASES[name])


@pytest.mark.parametrize("name", DIRECT)
def test_message_of_the_operators(name):
    function, arguments, error, words = DIRECT[name]
    assert_refused(function, arguments, {}, error, words)
