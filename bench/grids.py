"""The table of measures beyond CKA: ours, torch, bare products, the published code, the floor.

    python -m bench.grids --job svcca13 --repeats 5
    python -m bench.grids --list

Data: ``X_l = X_(l-1) + 0.5 noise``, float32, two threads. The published codes compare two layers at
a time: "published pair" is the first layer with the last, "published, 1 row" the first with all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from bench import harness, measure_formulas, minilm, published, torch_grids
from bench.harness import MB
from bench.recorded import grid_of, twin_of

BARE, CKA = "bare products", "cka grid"  # for their time; they are no measure, or another one
PAIR, ROW = "published pair", "published, 1 row"
# Jobs of a measure with options: the measure and the options.
VARIED: dict[str, tuple[str, dict[str, Any]]] = {
    "cca-r2": ("cca", {"reduction": "r2"}),
    "rsa-spearman": ("rsa", {"correlation": "spearman"}),
    "rsm-difference-spectral": ("rsm-difference", {"norm": "spectral"}),
    "gulp": ("gulp", {"ridge": 0.1}),
}
ROWWISE = ("cosine", "angular", "disagreement", "output-divergence")
NEIGHBOURS = ("knn-mutual", "knn-jaccard", "knn-rank", "knn-second-order", "cknna")
DISTANCES = (
    *("distance-correlation", "rsm-difference", "rsm-difference-spectral", "gulp"),
    *("eigenspace-overlap", "uniformity", "magnitude", "concentricity"),
    *("procrustes-distance", "procrustes-angular", "size-and-shape", *ROWWISE, "imd", "rtd"),
)
# Between layers of one width, the optimal transport of neurons is an assignment; that of the twin
# is a loop in Python, which would take minutes.
ASSIGNING = {
    "match-hard": published.match_hard,
    "match-transport": published.match_hard,
    "transport-distance": published.transport_distance,
    "permutation-procrustes": published.permutation_procrustes,
    "permutation-angular": published.permutation_angular,
}
# Made of matrix products and elementwise steps, which a compiler can join.
COMPILED = (
    *("rsa", "rsa-spearman", *NEIGHBOURS, *ROWWISE),
    *("distance-correlation", "rsm-difference", "uniformity", "concentricity"),
)
IN_FLOAT64 = ("rsa-spearman", "mixedsim")  # float32 products miss the contract
ROW_PUBLISHED = (*NEIGHBOURS, "match-hard", "match-soft", "permutation-procrustes")
ROW_PUBLISHED += ("aligned-cosine",)
PAIR_PUBLISHED = DISTANCES[:9]
PAIR_PUBLISHED += ("cosine",)
BOUND = 480 * MB  # of many layers


@dataclass(frozen=True)
class Contestant(harness.Contestant):
    """A function that returns a grid."""

    is_measure: bool = True


def pairs_of_first(pair: Callable[..., float], others: slice) -> Callable[[Tensor], Tensor]:
    """Return a function that compares the first layer with some others; the rest of it is nan."""

    def run(x: Tensor) -> Tensor:
        grid = torch.full((len(x), len(x)), torch.nan)
        for other in range(len(x))[others]:
            grid[0, other] = pair(x[0], x[other])
        return grid

    return run


def of_arrays(pair: Callable[..., float]) -> Callable[[Tensor, Tensor], float]:
    return lambda x, y: pair(x.numpy(), y.numpy())


@dataclass(frozen=True)
class Job(harness.LayersJob):
    """One measure on one input; of many layers, `bounded`, by ours, CKA and eager torch alone."""

    measure: str
    family: str
    bounded: bool = False
    per_pair: bool = False  # with torch that decomposes both layers of every pair anew
    source: Callable[[Job], Tensor] | None = field(default=None, repr=False)
    timed: bool = True

    def data(self) -> Tensor:
        return self.source(self) if self.source else super().data()

    def tiny(self) -> Self:
        return replace(super().tiny(), source=None)

    def contestants(self) -> dict[str, Contestant]:  # type: ignore[override]
        import simcore

        name, options = VARIED.get(self.measure, (self.measure, {}))
        bound = {"max_memory": BOUND} if self.bounded else {}
        formula = self.measure.removeprefix("knn-").replace("-", "_")
        found = {"ours": Contestant(functools.partial(grid_of(name, **options), **bound))}
        if self.measure in (*NEIGHBOURS, *DISTANCES):
            found[CKA] = Contestant(functools.partial(simcore.cka_grid, **bound), False)
        grid = getattr(torch_grids, formula, None) or getattr(measure_formulas, formula, None)
        if grid is not None:
            found["torch"] = Contestant(grid)
        if self.per_pair:
            found["torch per pair"] = Contestant(getattr(measure_formulas, f"{formula}_per_pair"))
        if self.measure in IN_FLOAT64:
            found["torch float64"] = Contestant(harness.in_float64(grid))
        if self.measure == "neuronsim":
            found["compiled"] = Contestant(measure_formulas.neuronsim_compiled())
        if self.measure in COMPILED and not self.bounded:
            found["compiled"] = Contestant(torch.compile(grid, dynamic=False))
        if self.measure in ("mixedsim", "linreg"):
            found[BARE] = Contestant(measure_formulas.bare_ordered, False)
        if self.family == "matching" or self.measure == "neuronsim":
            found[BARE] = Contestant(measure_formulas.bare_unordered, False)
        if self.measure in PAIR_PUBLISHED:
            pair = of_arrays(getattr(published, formula))
            found[PAIR] = Contestant(pairs_of_first(pair, slice(-1, None)))
        if self.measure in ROW_PUBLISHED and not self.bounded:
            pair = getattr(published, formula)
            found[ROW] = Contestant(pairs_of_first(pair, slice(None)))
        return found

    def error(self, grid: np.ndarray, x: Tensor, contestant: Contestant) -> float:
        """Return the error of the first layer and the last against float64, both ways.

        It is relative where a value is above 1, and nan of what is not the measure.
        """
        if not contestant.is_measure:
            return float("nan")
        first, last = ([x[i].double()] for i in (0, -1))
        if self.measure in ASSIGNING:
            of_pair = ASSIGNING[self.measure]
            wanted = [of_pair(*first, *last), of_pair(*last, *first)]
        else:
            name, options = VARIED.get(self.measure, (self.measure, {}))
            twin = twin_of(name, **options)
            first, last = [first[0].numpy()], [last[0].numpy()]
            wanted = [float(twin(a, b)[0, 0]) for a, b in ((first, last), (last, first))]
        found = np.array([grid[0, -1], grid[-1, 0]])
        return float(np.nanmax(np.abs(found - wanted) / np.maximum(1, np.abs(wanted))))

    def floor_flops(self) -> float:
        """Return the flops at full rank, each unordered pair once, and Grams by symmetry.

        n p^2 for a covariance or a triangular system, 2 n p^2 for a product or a basis, p^3 / 3 for
        a Cholesky factor, 9 p^3 for eigenvectors, 8/3 p^3 for singular values, 22 p^3 for singular
        vectors (Golub & Van Loan, table 8.6.1).
        """
        n, p, count = self.n, self.p, self.layers
        pairs = count * (count - 1) / 2
        product, values = 2 * n * p**2, 8 / 3 * p**3
        decompositions = count * (3 * n * p**2 + 9 * p**3)
        grams, contraction = count * n**2 * p, (pairs + count) * n**2
        whitened = count * (2 * n * p**2 + p**3 / 3)
        rotated = pairs * (product + values)
        return {
            "cca": decompositions + rotated,
            "cca-r2": decompositions + pairs * product,
            "svcca": decompositions + rotated,
            "pwcca": decompositions + pairs * (product + 22 * p**3),
            "mixedsim": decompositions + count**2 * product,
            "linreg": decompositions + count**2 * product,
            **dict.fromkeys(("rsa", "rsa-spearman"), grams + contraction),
            **dict.fromkeys(("distance-correlation", "rsm-difference"), grams + contraction),
            **dict.fromkeys((*NEIGHBOURS, "rsm-difference-spectral", "uniformity"), grams),
            **dict.fromkeys(("gulp", "eigenspace-overlap"), whitened + grams + contraction),
            "procrustes": rotated,
            **dict.fromkeys(
                ("procrustes-distance", "procrustes-angular", "size-and-shape"), rotated
            ),
            **dict.fromkeys((*ASSIGNING, "match-soft", "neuronsim"), pairs * product),
            "aligned-cosine": pairs * (product + 22 * p**3),
            **dict.fromkeys(ROWWISE, 2 * (pairs + count) * n * p),
            "imd": 2 * grams,
        }.get(self.measure, 2 * count * n * p)

    def floor_bytes(self) -> float:
        """Return the bytes of one read of the layers."""
        return 4.0 * self.layers * self.n * self.p


def _decaying(job: Job) -> Tensor:
    """Layers whose singular values fall as 1 / i: few components have nearly all the variance."""
    x = harness.drifting_layers(job.layers, job.n, job.p)
    x /= torch.arange(1, job.p + 1)
    turn = torch.randn(job.p, job.p, generator=torch.Generator().manual_seed(1))
    return x @ torch.linalg.qr(turn)[0]


def _minilm(job: Job) -> Tensor:
    return minilm.representations(job.n)[: job.layers, :, : job.p].clone()


def _of_13(family: str, **measures: str) -> dict[str, Job]:
    return {f"{name}13": Job(13, 1600, 768, one, family) for name, one in measures.items()}


JOBS = {
    **_of_13("cca", cca="cca", cca_r2_="cca-r2", svcca="svcca"),
    "svcca_minilm28": Job(28, 1600, 384, "svcca", "cca", source=_minilm),
    "svcca_large4": Job(4, 4096, 2048, "svcca", "cca", source=_decaying),
    "svcca13_pairs": Job(13, 1600, 768, "svcca", "cca", per_pair=True),
    **_of_13("cca", pwcca="pwcca"),
    "pwcca13_pairs": Job(13, 1600, 768, "pwcca", "cca", per_pair=True),
    **_of_13("cca", procrustes="procrustes", linreg="linreg"),
    **_of_13("rsa", rsa="rsa", rsa_spearman="rsa-spearman"),
    **_of_13("neurons", neuronsim="neuronsim", mixedsim="mixedsim"),
    **_of_13("neighbours", mutual="knn-mutual"),
    "mutual325": Job(325, 1600, 768, "knn-mutual", "neighbours", bounded=True),
    **_of_13("neighbours", jaccard="knn-jaccard", rank="knn-rank"),
    **_of_13("neighbours", second_order="knn-second-order", cknna="cknna"),
    **_of_13("distances", rsm_spectral="rsm-difference-spectral"),
    **_of_13("distances", **{one.replace("-", "_"): one for one in DISTANCES[:2]}),
    **_of_13("distances", **{one.replace("-", "_"): one for one in DISTANCES[3:-1]}),
    "rtd2": Job(2, 200, 768, "rtd", "distances"),
    "distance_correlation325": Job(325, 1600, 768, "distance-correlation", "distances", True),
    **_of_13("matching", hard_match="match-hard", soft_match="match-soft"),
    **_of_13("matching", soft_matching="match-transport", aligned_cosine="aligned-cosine"),
    **_of_13("matching", permutation_procrustes="permutation-procrustes"),
    **_of_13("matching", permutation_angular="permutation-angular"),
    **_of_13("matching", soft_matching_distance="transport-distance"),
}

if __name__ == "__main__":
    harness.main({"grids": JOBS}, __doc__)
