"""One module for each peer: which of its functions simcore replaces."""

import numpy as np


def one(grid):
    """Return the value of a grid of one pair of layers as a number."""
    return float(np.asarray(grid).item())
