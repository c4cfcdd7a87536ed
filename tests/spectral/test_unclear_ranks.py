"""A rank that rounding makes doubtful: one warning says of which layer, and in which function."""

import warnings

import numpy as np
import pytest

import simcore
from simcore import align, stats

ROWS = np.random.default_rng(0).standard_normal((100, 9))
OTHER = ROWS[:, :4].astype(np.float32)


def doubtful():
    """Return six columns, the last of which is what the others say but for float32's rounding."""
    x = ROWS[:, 4:].copy()
    last = x.sum(1) + 5e-7 * np.linalg.norm(x.sum(1)) * ROWS[:, 0] / 10
    return np.column_stack([x, last]).astype(np.float32)


GRIDS = ("cca", "svcca", "pwcca", "linreg", "mixedsim", "gulp", "eigenspace_overlap")
CALLS = {
    **{
        f"{name}_grid: the rank is not clear of Y[0]": lambda x, y, name=name: getattr(
            simcore, f"{name}_grid"
        )([y], [x])
        for name in GRIDS
    },
    "bases: the rank is not clear of X[1]": lambda x, y: simcore.bases([y, x]),
    "LinearAligner: the rank is not clear of X": lambda x, y: align.LinearAligner().fit(x, y),
    "align_grid: the rank is not clear of X[1]": lambda x, y: align.align_grid([y, x], [y]),
    "cca_grid: the rank is not clear of X[0]": lambda x, y: stats.permutation_test(
        [x], [y], measure="cca", permutations=2
    ),
}


@pytest.mark.parametrize("said", CALLS)
def test_the_function_and_the_layer_are_named_once(said):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        CALLS[said](doubtful(), OTHER)
    (found,) = [str(one.message) for one in caught]
    assert found.startswith(f"{said} (5 to 6, taken as ")
