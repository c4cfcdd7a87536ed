"""Changes of layers that leave some measures as they are."""

import numpy as np
import torch


def changed(kind, x, seed=3):
    """Change a layer in one of the ways that the tables of measures name."""
    n, width = x.shape
    generator = np.random.default_rng([seed, width])
    order, signs = generator.permutation(width), generator.choice([-1.0, 1.0], width)
    rotation = np.linalg.qr(generator.standard_normal((width, width)))[0]
    if kind == "translation":
        return x + 4 * torch.arange(width, dtype=x.dtype)
    if kind == "row lengths":
        return x * torch.from_numpy(generator.uniform(0.2, 5, (n, 1))).to(x.dtype)
    matrices = {
        "permutation": np.eye(width)[order],
        "signs": np.eye(width)[order] * signs,
        "neurons": np.eye(width)[order] * signs * generator.uniform(0.2, 5, width),
        "rotation": rotation,
        "linear": rotation * np.geomspace(0.2, 5, width) @ rotation[order],
        "scale": 3 * np.eye(width),
    }
    return x @ torch.from_numpy(matrices[kind]).to(x.dtype)
