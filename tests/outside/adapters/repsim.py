"""repsim of R. D. Lange: angular CKA and shape metrics of data."""

import math

import torch

from outside.adapters import one
from outside.plugin import Unmapped, replace
from simcore import cca_grid, cka_grid, procrustes_grid


@replace("repsim:compare")
def compare(original, x, y, method="stress", **options):
    """Return the distance of two layers, of which `p` directions are kept."""
    if method == "angular_cka":
        kernel = options.get("kernel")
        if options.get("use_unbiased_hsic", True) or type(kernel).__name__ != "Linear":
            raise Unmapped
        similarity = one(cka_grid([x], [y], estimator="biased"))
    elif method == "angular_shape_metric" and options["p"] >= max(x.shape[1], y.shape[1]):
        if options["alpha"] == 1:
            similarity = one(procrustes_grid([x], [y]))
        elif options["alpha"] == 0:
            similarity = one(cca_grid([x], [y]))
        else:
            raise Unmapped
    else:
        raise Unmapped
    return torch.tensor(math.acos(min(similarity, 1.0)), dtype=x.dtype)
