"""Statistics at scale: 200 permutations of the 13 x 13 grid, and their moments without drawing.

    python -m bench.stats --job permutation13 --repeats 5

Data as in bench/cka.py. The floor of `moments13` is that of one CKA grid, whose time stands beside.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from bench import cka, harness
from bench.peak import in_subprocess, peak_during

PERMUTATIONS = 200
CHECKED = 5  # permutations whose null values are compared with float64


def _orders(n: int, count: int) -> Tensor:
    """The permutations that `simcore.stats` draws for seed 0, the identity first."""
    from simcore.stats.measures import generator
    from simcore.stats.permutation import _permutations

    return torch.from_numpy(_permutations(generator(0), n, count)).long()


def permuted(x: Tensor) -> Tensor:
    """Ours: observed grid and null values, ``[1 + permutations, L, L]``."""
    from simcore import stats

    result = stats.permutation_test(x, permutations=PERMUTATIONS, return_null=True)
    return torch.cat([torch.as_tensor(result.observed)[None], torch.as_tensor(result.null)])


def torch_loop(x: Tensor, orders: Tensor | None = None) -> Tensor:
    """The same in plain torch: Grams once, reindexed and multiplied for each permutation."""
    x = x - x.mean(dim=1, keepdim=True)
    grams = torch.bmm(x, x.mT)
    flat = grams.flatten(1)
    norms = flat.norm(dim=1)
    orders = _orders(x.shape[1], PERMUTATIONS) if orders is None else orders
    values = [flat @ grams[:, order][:, :, order].flatten(1).T for order in orders]
    return torch.stack(values) / torch.outer(norms, norms)


def moments(x: Tensor) -> Tensor:
    """Ours: observed grid and mean of the null distribution, ``[2, L, L]``."""
    from simcore import stats

    result = stats.permutation_test(x, method="moments")
    return torch.stack([torch.as_tensor(result.observed), torch.as_tensor(result.null_mean)])


def grid(x: Tensor) -> Tensor:
    """One CKA grid, ``[1, L, L]``."""
    from simcore import cka_grid

    return torch.as_tensor(cka_grid(x))[None]


SHAPE = cka.Job(13, 1600, 768, cka._linear)


@dataclass(frozen=True)
class Job:
    """One row of the table: contestants that give ``[values, L, L]``, the observed grid first."""

    contestants: dict[str, Callable[[Tensor], Tensor]] = field(repr=False)
    draws: int
    shape: cka.Job = SHAPE

    def floor_flops(self) -> float:
        """Gram matrices with symmetry, and a product over half of them per draw."""
        layers, n = self.shape.layers, self.shape.n
        return self.shape.floor_flops() + self.draws * n**2 * layers**2


JOBS = {
    "permutation13": Job({"ours": permuted, "torch loop": torch_loop}, PERMUTATIONS),
    "moments13": Job({"ours": moments, "one grid": grid}, 0),
}


def measure(label: str, scale: float, name: str) -> dict[str, float]:
    """Peak memory beyond the inputs and error of one contestant, in this very process."""
    torch.set_num_threads(cka.THREADS)
    job = scaled(JOBS[label], scale)
    run = job.contestants[name]
    run(replace(job.shape, layers=2, n=64, p=8).data())  # libraries and threads are started
    x = job.shape.data()
    found: list[Tensor] = []
    peak = peak_during(lambda: found.append(run(x)))
    count = 1 + CHECKED if job.draws else 1
    pick = cka.sampled_layers(job.shape)
    exact = torch_loop(x[pick].double(), _orders(x.shape[1], count)[:count]).numpy()
    grids = found[0].double().numpy()[:count][:, pick][:, :, pick]
    return {"peak_bytes": peak, "max_error": float(np.abs(grids - exact).max())}


def scaled(job: Job, scale: float) -> Job:
    shape = job.shape
    return replace(job, shape=replace(shape, n=int(shape.n * scale), p=int(shape.p * scale)))


def run(label: str, scale: float, repeats: int) -> list[harness.Row]:
    """All contestants of a job, timed in turn, with memory and error measured apart."""
    torch.set_num_threads(cka.THREADS)
    job = scaled(JOBS[label], scale)
    x = job.shape.data()
    turns = {name: functools.partial(f, x) for name, f in job.contestants.items()}
    timings = harness.interleave({**harness.rate_contestants(), **turns}, repeats)
    rates = harness.Rates.of(timings)
    floor = job.floor_flops() / rates.flops_per_second
    rows = []
    for name in job.contestants:
        code = (
            "import json; from bench import stats;"
            f"print(json.dumps(stats.measure({label!r}, {scale!r}, {name!r})))"
        )
        apart = harness.parse_last_line(in_subprocess(code, timeout=3600))
        timing = timings[name]
        rows.append(
            harness.Row(
                job=label,
                contestant=name,
                over_floor=timing.median / floor,
                times_ours=timing.median / timings["ours"].median,
                peak_mb=apart["peak_bytes"] / cka.MB,
                max_error=apart["max_error"],
                median_s=timing.median,
                quartile_1_s=timing.quartile_1,
                quartile_3_s=timing.quartile_3,
                repeats=timing.repeats,
                floor_s=floor,
                floor_gflop=job.floor_flops() / 1e9,
                mm_gflops=rates.flops_per_second / 1e9,
                copy_gbs=rates.copied_bytes_per_second / 1e9,
                inputs_mb=x.nbytes / cka.MB,
            )
        )
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", action="append", choices=JOBS, help="one or more; default all")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="shrink n and p, for a trial run")
    parser.add_argument("--dry-run", action="store_true", help="print, but write no rows")
    options = parser.parse_args(arguments)
    for label in options.job or JOBS:
        rows = run(label, options.scale, options.repeats)
        print(harness.table(rows), flush=True)
        if not options.dry_run and options.scale == 1:
            print(harness.append(rows, "stats").relative_to(harness.ROOT))


if __name__ == "__main__":
    main()
