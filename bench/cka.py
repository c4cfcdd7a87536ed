"""The table of CKA jobs: ours, plain torch, compiled torch, the peer, and the floor.

    python -m bench.cka --job cka13 --repeats 7
    python -m bench.cka --list

Data: 13 to 325 layers with ``X_l = X_(l-1) + 0.5 noise``, float32, two threads.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from bench import formulas, harness, peer
from bench.peak import in_subprocess, peak_during

MB = 2**20
THREADS = 2


@dataclass(frozen=True)
class Contestant:
    """Something that gives a grid, and the options under which float64 gives the same."""

    run: Callable[[Tensor], object]
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


def _linear() -> dict[str, Contestant]:
    return {
        "ours": ours(),
        "torch gram": Contestant(formulas.gram),
        "torch tiled": Contestant(formulas.tiled),
        "compiled gram": compiled(formulas.gram),
        "compiled tiled": compiled(formulas.tiled),
        "pytorch-cka features": Contestant(peer.from_features, estimator="unbiased"),
        "pytorch-cka hooks": Contestant(peer.through_hooks, estimator="unbiased"),
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
        "pytorch-cka features": Contestant(peer.from_features, estimator="unbiased"),
        "pytorch-cka hooks": Contestant(peer.through_hooks, estimator="unbiased"),
    }


def _rbf() -> dict[str, Contestant]:
    return {
        "ours": ours(kernel="rbf"),
        "ours linear": ours(),
        "torch gram": Contestant(formulas.gram_rbf, kernel="rbf"),
        "compiled gram": compiled(formulas.gram_rbf, kernel="rbf"),
    }


def _many_rows() -> dict[str, Contestant]:
    return {
        "ours": ours(max_memory=900 * MB),
        "torch feature": Contestant(formulas.feature),
        "torch feature rows": Contestant(formulas.feature_rows),
        "torch tiled": Contestant(formulas.tiled),
        "compiled feature rows": compiled(formulas.feature_rows),
    }


def _memory() -> dict[str, Contestant]:
    return {"ours": ours(max_memory=900 * MB), "torch tiled": Contestant(formulas.tiled_small)}


@dataclass(frozen=True)
class Job:
    """One row of the table; ``timed=False`` measures memory and error only."""

    layers: int
    n: int
    p: int
    contestants: Callable[[], dict[str, Contestant]] = field(repr=False)
    timed: bool = True

    def data(self) -> Tensor:
        """``[layers, n, p]``, every layer the one before plus half as much noise."""
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(self.layers, self.n, self.p, generator=generator)
        for i in range(1, self.layers):
            x[i] = x[i - 1] + 0.5 * x[i]
        return x

    def floor_flops(self) -> float:
        """The fewest flops: Gram path with symmetry, or the feature path where that has fewer."""
        by_gram = self.layers * self.n**2 * self.p + self.layers * (self.layers + 1) / 2 * self.n**2
        by_feature = self.n * (self.layers * self.p) ** 2
        return float(min(by_gram, by_feature))


JOBS = {
    "cka13": Job(13, 1600, 768, _linear),
    "cka52": Job(52, 1600, 768, _linear),
    "cka325": Job(325, 1600, 768, _many_layers),
    "unbiased13": Job(13, 1600, 768, _unbiased),
    "rbf13": Job(13, 1600, 768, _rbf),
    "rows20000": Job(13, 20_000, 768, _many_rows),
    "memory325": Job(325, 4000, 768, _memory, timed=False),
}


def exact(x: Tensor, contestant: Contestant) -> np.ndarray:
    """The grid of a few layers in float64."""
    from simcore import reference

    layers = [layer.double().numpy() for layer in x]
    if (contestant.kernel, contestant.estimator) != ("linear", "biased"):
        return reference.cka_grid(layers, kernel=contestant.kernel, estimator=contestant.estimator)
    # The twin would hold n x n: the same number from cross-covariances serves n = 20,000 too.
    centered = [reference.center(layer) for layer in layers]
    hsic = np.array([[np.square(a.T @ b).sum() for b in centered] for a in centered])
    scale = np.sqrt(hsic.diagonal())
    return hsic / np.outer(scale, scale)


def sampled_layers(job: Job) -> list[int]:
    """First, middle and last layer: comparing all pairs in float64 would take hours."""
    return sorted({0, job.layers // 2, job.layers - 1})


def measure(job: Job, name: str) -> dict[str, float]:
    """Peak memory beyond the inputs and error of one contestant, in this very process."""
    torch.set_num_threads(THREADS)
    contestant = job.contestants()[name]
    # Libraries and threads are started before the meter; a compiler's memory, which is not the
    # formula's, needs the very shapes for that.
    tiny = replace(job, layers=2, n=64, p=8)
    contestant.run((job if name.startswith("compiled") else tiny).data())
    x = job.data()
    found: list[object] = []
    peak = peak_during(lambda: found.append(contestant.run(x)))
    grid = torch.as_tensor(found[0]).double().numpy()
    pick = sampled_layers(job)
    error = float(np.abs(grid[np.ix_(pick, pick)] - exact(x[pick], contestant)).max())
    return {"peak_bytes": peak, "max_error": error}


def measure_apart(job: Job, name: str) -> dict[str, float]:
    """`measure` in a process of its own, where nothing ran before."""
    shape = (job.layers, job.n, job.p)
    factory = job.contestants.__name__
    code = (
        "import json; from bench import cka;"
        f"job = cka.Job(*{shape!r}, cka.{factory});"
        f"print(json.dumps(cka.measure(job, {name!r})))"
    )
    return harness.parse_last_line(in_subprocess(code, timeout=3600))


def run(label: str, job: Job, repeats: int) -> list[harness.Row]:
    """All contestants of a job, timed in turn, with memory and error measured apart."""
    torch.set_num_threads(THREADS)
    contestants = job.contestants()
    apart = {name: measure_apart(job, name) for name in contestants}
    timings: dict[str, harness.Timing] = {}
    rates = floor = None
    if job.timed:
        x = job.data()
        turns = {name: functools.partial(c.run, x) for name, c in contestants.items()}
        timings = harness.interleave({**harness.rate_contestants(), **turns}, repeats)
        rates = harness.Rates.of(timings)
        floor = job.floor_flops() / rates.flops_per_second
    rows = []
    for name in contestants:
        timing = timings.get(name)
        rows.append(
            harness.Row(
                job=label,
                contestant=name,
                over_floor=timing and timing.median / floor,
                times_ours=timing and timing.median / timings["ours"].median,
                peak_mb=apart[name]["peak_bytes"] / MB,
                max_error=apart[name]["max_error"],
                median_s=timing and timing.median,
                quartile_1_s=timing and timing.quartile_1,
                quartile_3_s=timing and timing.quartile_3,
                repeats=timing.repeats if timing else 0,
                floor_s=floor,
                floor_gflop=job.floor_flops() / 1e9,
                mm_gflops=rates and rates.flops_per_second / 1e9,
                copy_gbs=rates and rates.copied_bytes_per_second / 1e9,
                inputs_mb=4 * job.layers * job.n * job.p / MB,
            )
        )
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", action="append", choices=JOBS, help="one or more; default all")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0, help="shrink n and p, for a trial run")
    parser.add_argument("--dry-run", action="store_true", help="print, but write no rows")
    parser.add_argument("--list", action="store_true", help="name the jobs and stop")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(f"{label:12} {job}" for label, job in JOBS.items()))
        return
    for label in options.job or JOBS:
        job = JOBS[label]
        job = replace(job, n=int(job.n * options.scale), p=int(job.p * options.scale))
        rows = run(label, job, options.repeats)
        print(harness.table(rows), flush=True)
        if not options.dry_run and options.scale == 1:
            print(harness.append(rows, "cka").relative_to(harness.ROOT))


if __name__ == "__main__":
    main()
