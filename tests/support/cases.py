"""The inputs that every measure is tested on; the same parameters serve every device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
import torch

WIDTHS = (7, 1, 64, 33)  # ragged, with one layer of a single neuron
DTYPES = (torch.float32, torch.float64)
HALVES = (torch.float16, torch.bfloat16)
ESTIMATORS = ("biased", "unbiased")
KERNELS = ("linear", "rbf")
MINIMUM_N = {"biased": 2, "unbiased": 4}


@dataclass(frozen=True)
class Case:
    """One kind of input: n rows, a common offset in standard deviations, an outlier dimension."""

    n: int
    offset: float = 0.0
    outlier: bool = False
    widths: tuple[int, ...] = WIDTHS

    def __str__(self) -> str:
        outlier = "-outlier" if self.outlier else ""
        return f"n{self.n}-offset{self.offset:g}{outlier}-widths{'x'.join(map(str, self.widths))}"


@contextmanager
def noted(*case: object) -> Iterator[None]:
    """Name the case of a test of several cases where a check of it fails."""
    try:
        yield
    except (AssertionError, pytest.fail.Exception) as error:
        error.add_note(" ".join(map(str, case)))
        raise


SIZES = tuple(Case(n) for n in (2, 3, 4, 5, 31, 33, 129, 400))
SHIFTS = tuple(
    Case(n, offset, outlier)
    for n in (4, 33, 129)
    for offset in (0.0, 10.0, 1000.0)
    for outlier in (False, True)
    if offset or outlier
)
SHAPES = (
    Case(33, widths=(5,)),
    Case(33, widths=(1,)),
    Case(33, widths=(1, 1, 1)),
    Case(65, offset=10.0, widths=(300, 2, 129)),
    Case(150, offset=10.0, outlier=True, widths=(768, 768)),
    Case(700, offset=10.0, widths=(3, 17)),
)
CASES = SIZES + SHIFTS + SHAPES


def layers(case: Case, dtype: torch.dtype = torch.float64, *, seed: int = 0) -> list[torch.Tensor]:
    """Correlated layers: each mixes six shared latent variables and adds noise of its own.

    Real encoders show both a common offset and one dimension far larger than the rest, in mean and
    in spread; ``offset`` and ``outlier`` imitate them. Other seeds share the latent variables.
    """
    latent = np.random.default_rng(case.n).standard_normal((case.n, 6))
    generator = np.random.default_rng([seed, case.n, *case.widths])
    result = []
    for width in case.widths:
        mixed = latent @ generator.standard_normal((6, width)) / np.sqrt(6)
        x = mixed + 0.7 * generator.standard_normal((case.n, width)) + case.offset
        if case.outlier:
            x[:, 0] *= 30
        result.append(torch.from_numpy(x).to(dtype))
    return result


def exact(tensors: list[torch.Tensor] | None) -> list[np.ndarray] | None:
    """Return the exact values of the tensors in float64, as inputs of the twin."""
    if tensors is None:
        return None
    return [tensor.detach().to(torch.float64).numpy() for tensor in tensors]


def attention(
    words: tuple[int, ...],
    heads: tuple[int, ...],
    dtype: torch.dtype = torch.float64,
    *,
    seed: int = 0,
) -> list[list[torch.Tensor]]:
    """Attention of layers with ``heads`` heads to sentences of ``words`` words, ``[H, t, t]`` each.

    Heads share a pattern and differ in noise and sharpness. Weights below a hundredth of the
    largest are exact zeros, as in windowed or sparse attention; the last word of every head of
    the first layer attends uniformly, which is a constant row.
    """
    generator = np.random.default_rng([seed, *words, *heads])
    patterns = [np.random.default_rng(t).standard_normal((t, t)) for t in words]
    layers = []
    for index, count in enumerate(heads):
        layer = []
        for pattern in patterns:
            noise = generator.standard_normal((count, *pattern.shape))
            weights = np.exp(np.arange(1, count + 1)[:, None, None] * (pattern + 0.7 * noise))
            weights[weights < weights.max(axis=-1, keepdims=True) / 100] = 0
            if index == 0:
                weights[:, -1] = 1
            weights /= weights.sum(axis=-1, keepdims=True)
            layer.append(torch.from_numpy(weights).to(dtype))
        layers.append(layer)
    return layers


def exact_attention(layers: list[list[torch.Tensor]]) -> list[list[np.ndarray]]:
    """Return `exact` of every layer of attention."""
    return [exact(layer) for layer in layers]


def padded(layer: list[torch.Tensor], fill: float = float("nan")) -> torch.Tensor:
    """One layer's sentences as a batch ``[S, H, T, T]``, with ``fill`` beyond their lengths."""
    longest = max(sentence.shape[1] for sentence in layer)
    batch = layer[0].new_full((len(layer), layer[0].shape[0], longest, longest), fill)
    for s, sentence in enumerate(layer):
        t = sentence.shape[1]
        batch[s, :, :t, :t] = sentence
    return batch


def spread_out(x):
    """Return the values in every non-contiguous layout."""
    n, p = x.shape
    wide = torch.zeros(n, 2 * p, dtype=x.dtype)
    wide[:, ::2] = x
    tall = torch.zeros(3 * n, p, dtype=x.dtype)
    tall[1::3] = x
    return {
        "transposed": x.T.contiguous().T,
        "every second column": wide[:, ::2],
        "every third row": tall[1::3],
        "offset in storage": torch.cat([torch.ones(5, p, dtype=x.dtype), x])[5:],
        "reversed twice": x.flip(0).flip(0),
    }
