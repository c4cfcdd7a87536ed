"""pytorch-cka: CKA of features, and of the modules of two models."""

import torch

from outside.plugin import Unmapped, replace
from simcore import cka_grid, compare


@replace("cka:cka_from_features")
def cka_from_features(original, features_x, features_y):
    sides = [
        [x] if torch.is_tensor(x) and x.ndim == 2 else list(x) for x in (features_x, features_y)
    ]
    return cka_grid(*sides, estimator="unbiased").to(sides[0][0].dtype)


@replace("cka:compute_cka")
def compute_cka(
    original,
    model1,
    model2,
    *loaders,
    layers=None,
    model2_layers=None,
    device=None,
    progress=True,
    verbose=False,
):
    if len(loaders) == 1 and isinstance(loaders[0], list | tuple):
        loaders = tuple(loaders[0])
    if not loaders or verbose or device is not None:
        raise Unmapped
    names = _names(model1, layers)
    names_2 = _names(model2, layers if model2_layers is None else model2_layers)
    how = {"modules": names, "modules_b": names_2, "streaming": True, "progress": progress}
    return [compare(model1, model2, loader, **how).values for loader in loaders]


def _names(model, layers):
    """Return the names that the package would take: of all modules but the whole model."""
    every = [name for name, _ in model.named_modules() if name]
    if layers is None:
        return every
    return [every[layer] if isinstance(layer, int) else layer for layer in layers]
