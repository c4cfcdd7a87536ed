"""The table of CKA jobs: ours, plain torch, compiled torch, the peer, and the floor.

    python -m bench.cka --job cka13 --repeats 7
    python -m bench.cka --list

Data: 13 to 325 layers with ``X_l = X_(l-1) + 0.5 noise``, float32, two threads.
"""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from bench import formulas, harness, peer
from bench.harness import MB, drifting_layers, in_float64


@dataclass(frozen=True)
class Contestant(harness.Contestant):
    """A function that returns a grid, and options under which float64 gives the same grid."""

    kernel: str = "linear"
    estimator: str = "biased"


def ours(**options: object) -> Contestant:
    """`simcore.cka_grid` with some options."""
    from simcore import cka_grid

    measure = {key: options[key] for key in ("kernel", "estimator") if key in options}
    return Contestant(functools.partial(cka_grid, **options), **measure)  # type: ignore[arg-type]


def compiled(run: Callable[[Tensor], Tensor], **measure: str) -> Contestant:
    """`torch.compile` of a formula; the warm-up round pays for the compilation."""
    return Contestant(torch.compile(run, dynamic=False), **measure)


def _peer() -> dict[str, Contestant]:
    """Return both entry points of the peer, where it is installed."""
    if not peer.is_installed():
        return {}
    return {
        "pytorch-cka features": Contestant(peer.from_features, estimator="unbiased"),
        "pytorch-cka hooks": Contestant(peer.through_hooks, estimator="unbiased"),
    }


def _linear() -> dict[str, Contestant]:
    return {
        "ours": ours(),
        "torch gram": Contestant(formulas.gram),
        "torch tiled": Contestant(formulas.tiled),
        "compiled gram": compiled(formulas.gram),
        "compiled tiled": compiled(formulas.tiled),
        **_peer(),
    }


def _many_layers() -> dict[str, Contestant]:
    return {
        "ours": ours(max_memory=480 * MB),
        "torch gram": Contestant(formulas.gram),
        "torch tiled": Contestant(formulas.tiled_small),
        "compiled tiled": compiled(formulas.tiled_small),
    }


def _unbiased() -> dict[str, Contestant]:
    return {
        "ours": ours(estimator="unbiased"),
        "ours biased": ours(),
        "torch gram": Contestant(formulas.gram_unbiased, estimator="unbiased"),
        "compiled gram": compiled(formulas.gram_unbiased, estimator="unbiased"),
        **_peer(),
    }


def _rbf() -> dict[str, Contestant]:
    return {
        "ours": ours(kernel="rbf"),
        "ours linear": ours(),
        "torch gram": Contestant(formulas.gram_rbf, kernel="rbf"),
        "compiled gram": compiled(formulas.gram_rbf, kernel="rbf"),
        "torch gram float64": Contestant(in_float64(formulas.gram_rbf), kernel="rbf"),
    }


def _many_rows() -> dict[str, Contestant]:
    return {
        "ours": ours(max_memory=900 * MB),
        "torch feature": Contestant(formulas.feature),
        "torch feature rows": Contestant(formulas.feature_rows),
        "torch tiled": Contestant(formulas.tiled),
        "compiled feature rows": compiled(formulas.feature_rows),
    }


def _large_model() -> dict[str, Contestant]:
    return {
        "ours": ours(max_memory=900 * MB),
        "torch gram": Contestant(formulas.gram),
        "torch tiled": Contestant(formulas.tiled),
    }


def _mapped() -> dict[str, Contestant]:
    return {
        "ours": ours(max_memory=900 * MB),
        "torch feature chunks": Contestant(formulas.feature_chunks),
    }


def _memory() -> dict[str, Contestant]:
    return {"ours": ours(max_memory=900 * MB), "torch tiled": Contestant(formulas.tiled_small)}


@dataclass(frozen=True)
class Job(harness.LayersJob):
    """One row of the table."""

    contestants: Callable[[], dict[str, Contestant]] = field(repr=False)
    timed: bool = True

    def error(self, grid: np.ndarray, x: Tensor, contestant: Contestant) -> float:
        # First, middle and last layer: comparing all pairs in float64 would take hours.
        pick = sorted({0, self.layers // 2, self.layers - 1})
        return float(np.abs(grid[np.ix_(pick, pick)] - exact(x[pick], contestant)).max())

    def floor_flops(self) -> float:
        """Return the flops of the Gram path with symmetry, or of the feature path if fewer."""
        by_gram = self.layers * self.n**2 * self.p + self.layers * (self.layers + 1) / 2 * self.n**2
        by_feature = self.n * (self.layers * self.p) ** 2
        return float(min(by_gram, by_feature))


@dataclass(frozen=True)
class MappedJob(Job):
    """A job on layers of float16 in a mapped file, all of whose pages are in memory."""

    def data(self) -> Tensor:
        layers = drifting_layers(self.layers, self.n, self.p).half()
        with tempfile.NamedTemporaryFile() as file:
            layers.numpy().tofile(file)
            file.flush()
            mapped = torch.from_file(file.name, size=layers.numel(), dtype=torch.float16)
        mapped.view(torch.int16).max()  # reads every page
        return mapped.view(layers.shape)


JOBS = {
    "cka13": Job(13, 1600, 768, _linear),
    "cka52": Job(52, 1600, 768, _linear),
    "cka325": Job(325, 1600, 768, _many_layers),
    "unbiased13": Job(13, 1600, 768, _unbiased),
    "rbf13": Job(13, 1600, 768, _rbf),
    "rows20000": Job(13, 20_000, 768, _many_rows),
    "large64": Job(64, 2048, 4096, _large_model),
    "mapped2": MappedJob(2, 100_000, 4096, _mapped),
    "memory325": Job(325, 4000, 768, _memory, timed=False),
}


def exact(x: Tensor, contestant: Contestant) -> np.ndarray:
    """The grid of a few layers in float64."""
    from simcore import reference

    if (contestant.kernel, contestant.estimator) != ("linear", "biased"):
        layers = [layer.double().numpy() for layer in x]
        return reference.cka_grid(layers, kernel=contestant.kernel, estimator=contestant.estimator)
    # The twin would hold n x n matrices, and float64 layers of 100,000 rows are large too.
    means = [layer.mean(dim=0, dtype=torch.float64) for layer in x]
    hsic = np.zeros((len(x), len(x)))
    for a, b in itertools.combinations_with_replacement(range(len(x)), 2):
        covariance = sum(
            (rows_a.double() - means[a]).T @ (rows_b.double() - means[b])
            for rows_a, rows_b in zip(x[a].split(8192), x[b].split(8192), strict=True)
        )
        hsic[a, b] = hsic[b, a] = covariance.square().sum()
    scale = np.sqrt(hsic.diagonal())
    return hsic / np.outer(scale, scale)


if __name__ == "__main__":
    harness.main({"cka": JOBS}, __doc__)
