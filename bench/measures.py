"""The table of the CCA family and the neuron level: ours, plain torch, bare products, the floor.

    python -m bench.measures --job svcca13 --repeats 5
    python -m bench.measures --list

Data: ``X_l = X_(l-1) + 0.5 noise``, or 28 layers of MiniLM with its top 0, 2, 4 and 6 layers
initialised anew; float32, two threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from bench import harness, minilm
from bench import measure_formulas as formulas
from bench.recorded import grid_of, twin_of

# Jobs of a measure with options: the measure and the options.
VARIED: dict[str, tuple[str, dict[str, Any]]] = {
    "cca_r2": ("cca", {"reduction": "r2"}),
    "rsa_spearman": ("rsa", {"correlation": "spearman"}),
}


@dataclass(frozen=True)
class Contestant:
    """A function that returns a grid."""

    run: Callable[[Tensor], object]


def _contestants(measure: str, **others: Callable[[Tensor], object]) -> dict[str, Contestant]:
    name, options = VARIED.get(measure, (measure, {}))
    ours = {"ours": grid_of(name, **options), "torch": getattr(formulas, measure)}
    return {name.replace("_", " "): Contestant(run) for name, run in {**ours, **others}.items()}


def _cca() -> dict[str, Contestant]:
    return _contestants("cca")


def _cca_r2() -> dict[str, Contestant]:
    return _contestants("cca_r2")


def _rsa() -> dict[str, Contestant]:
    return _contestants("rsa", compiled=torch.compile(formulas.rsa, dynamic=False))


def _rsa_spearman() -> dict[str, Contestant]:
    formula = torch.compile(formulas.rsa_spearman, dynamic=False)
    wide = harness.in_float64(formulas.rsa_spearman)
    return _contestants("rsa_spearman", compiled=formula, torch_float64=wide)


def _svcca() -> dict[str, Contestant]:
    return _contestants("svcca")


def _svcca_pairs() -> dict[str, Contestant]:
    return _contestants("svcca", torch_per_pair=formulas.svcca_per_pair)


def _pwcca() -> dict[str, Contestant]:
    return _contestants("pwcca")


def _pwcca_pairs() -> dict[str, Contestant]:
    return _contestants("pwcca", torch_per_pair=formulas.pwcca_per_pair)


def _procrustes() -> dict[str, Contestant]:
    return _contestants("procrustes")


def _neuronsim() -> dict[str, Contestant]:
    compiled = formulas.neuronsim_compiled()
    return _contestants("neuronsim", compiled=compiled, bare_products=formulas.bare_unordered)


def _mixedsim() -> dict[str, Contestant]:
    wide = harness.in_float64(formulas.mixedsim)
    return _contestants("mixedsim", bare_products=formulas.bare_ordered, torch_float64=wide)


def _linreg() -> dict[str, Contestant]:
    return _contestants("linreg", bare_products=formulas.bare_ordered)


def _decaying(job: Job) -> Tensor:
    """Layers whose singular values fall as 1 / i: few components have nearly all the variance."""
    x = harness.drifting_layers(job.layers, job.n, job.p)
    x /= torch.arange(1, job.p + 1)
    turn = torch.randn(job.p, job.p, generator=torch.Generator().manual_seed(1))
    return x @ torch.linalg.qr(turn)[0]


def _minilm(job: Job) -> Tensor:
    return minilm.representations(job.n)[: job.layers, :, : job.p].clone()


@dataclass(frozen=True)
class Job(harness.LayersJob):
    """One measure on one input."""

    measure: str
    contestants: Callable[[], dict[str, Contestant]] = field(repr=False)
    source: Callable[[Job], Tensor] | None = field(default=None, repr=False)
    timed: bool = True

    def data(self) -> Tensor:
        return self.source(self) if self.source else super().data()

    def tiny(self) -> Self:
        return replace(super().tiny(), source=None)

    def error(self, grid: np.ndarray, x: Tensor, contestant: Contestant) -> float:
        """Return the error against the twin, first and last layer; nan for bare products."""
        pick = [0, self.layers - 1]
        layers = [x[i].double().numpy() for i in pick]
        name, options = VARIED.get(self.measure, (self.measure, {}))
        want = twin_of(name, **options)(layers)
        return float(np.abs(grid[np.ix_(pick, pick)] - want).max())

    def floor_flops(self) -> float:
        """Return the flops at full rank, each unordered pair once.

        n p^2 for a covariance, 2 n p^2 for a product or a basis, 9 p^3 for eigenvectors, 8/3 p^3
        for singular values, 22 p^3 for singular vectors (Golub & Van Loan, table 8.6.1).
        """
        n, p, count = self.n, self.p, self.layers
        pairs = count * (count - 1) / 2
        product, decompositions = 2 * n * p**2, count * (3 * n * p**2 + 9 * p**3)
        return {
            "cca": decompositions + pairs * (product + 8 / 3 * p**3),
            "cca_r2": decompositions + pairs * product,
            "rsa": count * n**2 * p + pairs * n**2,
            "rsa_spearman": count * n**2 * p + pairs * n**2,
            "svcca": decompositions + pairs * (product + 8 / 3 * p**3),
            "pwcca": decompositions + pairs * (product + 22 * p**3),
            "procrustes": pairs * (product + 8 / 3 * p**3),
            "neuronsim": pairs * product,
            "mixedsim": decompositions + count**2 * product,
            "linreg": decompositions + count**2 * product,
        }[self.measure]


JOBS = {
    "cca13": Job(13, 1600, 768, "cca", _cca),
    "cca_r2_13": Job(13, 1600, 768, "cca_r2", _cca_r2),
    "rsa13": Job(13, 1600, 768, "rsa", _rsa),
    "rsa_spearman13": Job(13, 1600, 768, "rsa_spearman", _rsa_spearman),
    "svcca13": Job(13, 1600, 768, "svcca", _svcca),
    "svcca_minilm28": Job(28, 1600, 384, "svcca", _svcca, _minilm),
    "svcca_large4": Job(4, 4096, 2048, "svcca", _svcca, _decaying),
    "svcca13_pairs": Job(13, 1600, 768, "svcca", _svcca_pairs),
    "pwcca13": Job(13, 1600, 768, "pwcca", _pwcca),
    "pwcca13_pairs": Job(13, 1600, 768, "pwcca", _pwcca_pairs),
    "procrustes13": Job(13, 1600, 768, "procrustes", _procrustes),
    "neuronsim13": Job(13, 1600, 768, "neuronsim", _neuronsim),
    "mixedsim13": Job(13, 1600, 768, "mixedsim", _mixedsim),
    "linreg13": Job(13, 1600, 768, "linreg", _linreg),
}

if __name__ == "__main__":
    harness.main({"measures": JOBS}, __doc__)
