"""The table of attention jobs: ours, broadcast and factored plain torch, compiled, and the floor.

    python -m bench.attention --job js12 --repeats 5
    python -m bench.attention --list

Data: softmax of scores that drift from layer to layer, float32, two threads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from bench import attention_formulas as formulas
from bench import harness
from bench.harness import Contestant

# Flops of one term of a sum over pairs of heads: a logarithm to float32's precision takes ten
# multiply-adds; a product takes one.
FLOPS = {"js": 20, "pearson": 2, "frobenius": 2}


def ours(measure: str, **options: object) -> Contestant:
    """`simcore.attention_grid`."""
    from simcore import attention_grid

    return Contestant(functools.partial(attention_grid, measure=measure, **options))  # type: ignore[arg-type]


def compiled(grid: Callable[..., Tensor], pair: formulas.Pair) -> Contestant:
    """Return a grid function whose formula for a pair of layers is compiled by `torch.compile`."""
    return Contestant(functools.partial(grid, pair=torch.compile(pair, dynamic=False)))


def _js() -> dict[str, Contestant]:
    return {
        "ours": ours("js"),
        "torch broadcast": Contestant(formulas.js_broadcast),
        "torch entropies": Contestant(formulas.js_entropies),
        "compiled broadcast": compiled(formulas.js_broadcast, formulas.js_pair),
        "compiled entropies": compiled(formulas.js_entropies, formulas.js_mixture),
    }


def _pearson() -> dict[str, Contestant]:
    return {
        "ours": ours("pearson"),
        "torch product": Contestant(formulas.pearson_product),
        "compiled product": Contestant(torch.compile(formulas.pearson_product, dynamic=False)),
    }


def _frobenius() -> dict[str, Contestant]:
    return {
        "ours": ours("frobenius"),
        "torch cdist": Contestant(formulas.frobenius_cdist),
        "compiled cdist": Contestant(torch.compile(formulas.frobenius_cdist, dynamic=False)),
    }


@dataclass(frozen=True)
class Job(harness.Job):
    """One row of the table."""

    measure: str
    layers: int
    heads: int
    sentences: int
    words: int
    contestants: Callable[[], dict[str, Contestant]] = field(repr=False)
    timed: bool = True

    def data(self) -> Tensor:
        """``[layers, sentences, heads, words, words]``, each layer's scores like the one before."""
        generator = torch.Generator().manual_seed(0)
        shape = (self.layers, self.sentences, self.heads, self.words, self.words)
        x = torch.randn(shape, generator=generator)
        for i in range(1, self.layers):
            x[i] = 0.9 * x[i - 1] + 0.4 * x[i]
        for layer in x:  # in place, layer by layer: the input is large
            layer.copy_((2 * layer).softmax(dim=-1))
        return x

    def tiny(self) -> Job:
        return replace(self, layers=2, sentences=2, heads=2, words=4)

    def scaled(self, factor: float) -> Job:
        return replace(self, sentences=max(1, int(self.sentences * factor)))

    def error(self, grid: np.ndarray, x: Tensor, contestant: Contestant) -> float:
        """Return the error against the twin's formulas in float64, first and last layer."""
        pick = [0, self.layers - 1]
        want = EXACT[self.measure](x[pick].double()).numpy()
        return float(np.abs(grid[np.ix_(pick, pick)] - want).max())

    def floor_flops(self) -> float:
        """Return the flops of every unordered pair of heads, counted once."""
        heads = self.layers * self.heads
        terms = heads * (heads + 1) / 2 * self.sentences * self.words**2
        return FLOPS[self.measure] * terms


# The twin takes minutes, these formulas seconds; bench/test_attention_bench.py compares them.
EXACT = {
    "js": formulas.js_broadcast,
    "pearson": formulas.pearson_product,
    "frobenius": formulas.frobenius_cdist,
}

JOBS = {
    "js12": Job("js", 12, 12, 200, 32, _js),
    "pearson12": Job("pearson", 12, 12, 200, 32, _pearson),
    "frobenius12": Job("frobenius", 12, 12, 200, 32, _frobenius),
}

if __name__ == "__main__":
    harness.main({"attention": JOBS}, __doc__)
