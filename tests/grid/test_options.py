"""Options that are numbers: those of numpy are taken, True and False are none."""

import numpy as np
import pytest
import torch

from simcore import align, cka_grid, gulp_grid, mixedsim_grid, nn, stats, svcca_grid
from support.cases import Case, layers
from support.trained import trained

X = layers(Case(40, widths=(5, 6)), torch.float64)


def fitted(kind, **options):
    return kind(**trained(seed=0, max_epochs=2, **options)).fit(X[0], X[1]).errors(*X).mse


# name: (what a value of the option gives, a value)
NUMBERS = {
    "bandwidth": (lambda v: cka_grid(X, kernel="rbf", bandwidth=v), 0.5),
    "ridge": (lambda v: gulp_grid(X, ridge=v), 0.5),
    "max_memory": (lambda v: cka_grid(X, max_memory=v), 2**20),
    "top_k": (lambda v: mixedsim_grid(X, top_k=v), 0.5),
    "truncation": (lambda v: svcca_grid(X, truncation=v), 0.5),
    "confidence": (lambda v: stats.bootstrap_ci(X, resamples=5, confidence=v).low, 0.5),
    "heldout": (lambda v: align.align_grid(X, X, heldout=v).heldout[0][1].mse, 0.25),
    "weight_share": (lambda v: align.PWCCAAligner(weight_share=v).fit(*X).correlations_, 0.5),
    "ridge of a map": (lambda v: align.LinearAligner(ridge=v).fit(*X).coef_, 0.5),
    "learning_rate": (lambda v: fitted(align.MLPAligner, learning_rate=v), 0.25),
    "weight_decay": (lambda v: fitted(align.MLPAligner, weight_decay=v), 0.25),
    "warmup": (lambda v: fitted(align.MLPAligner, warmup=v), 0.25),
    "decay": (lambda v: fitted(align.MLPAligner, schedule="exponential", decay=v), 0.5),
    "validation_share": (lambda v: fitted(align.MLPAligner, validation_share=v), 0.25),
    "clamp": (lambda v: nn.AffineCoupling(4, 8, clamp=v).clamp, 0.5),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_numpy_are_numbers(name):
    result, value = NUMBERS[name]
    kind = np.int32 if isinstance(value, int) else np.float32
    np.testing.assert_array_equal(result(kind(value)), result(value))


@pytest.mark.parametrize("name", NUMBERS)
def test_true_is_no_number(name):
    result, _ = NUMBERS[name]
    with pytest.raises(ValueError, match=f"^{name.split()[0]}: wanted .*, got True"):
        result(True)
