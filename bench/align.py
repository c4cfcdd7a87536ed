"""Alignment: can the invertible network find a random one again, and is a batch of pairs cheaper?

    python -m bench.align --job pairs16 --repeats 3
    python -m bench.align synthetic

`pairs16`: 16 maps of d = 384 on n = 1,600 rows, in one batched loop and one after another; rows of
the common harness in results/align.csv. The floor is the products of the perceptrons.

`synthetic` (Ren et al. 2023, section 4.3): X are tokens of MiniLM's last layer, Y = f(X) with f a
random `CouplingINN`; every method learns on some sentences and is judged on others. Rows in
results/align_synthetic.csv.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bench import harness, minilm

PAIRS, EPOCHS, HIDDEN, BLOCKS = 16, 3, 256, 4
SENTENCES, TRAINING_SENTENCES, ROWS = 4000, 3400, 30_000
TEACHER = {"n_blocks": 2, "hidden": 16, "depth": 1, "output_gain": 1.6}
LINEAR = {"linear": {}, "linear, ridge 10": {"ridge": 10.0}, "cca": {}, "svcca": {}, "pwcca": {}}
TRAINED = {
    "inn": {"n_blocks": 2, "hidden": 128, "learning_rate": 5e-3, "max_epochs": 12},
    "mlp": {"hidden": 512, "learning_rate": 1e-3, "max_epochs": 12},
}
SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Contestant:
    """Something that gives the held-out error of every pair, ``[pairs]``."""

    run: Callable[[Tensor], Tensor]


def _train(x: Tensor, at_once: int | None) -> Tensor:
    from simcore.align import align_pairs

    params = {"max_epochs": EPOCHS, "hidden": HIDDEN, "n_blocks": BLOCKS, "depth": 1}
    results = align_pairs(list(x[::2]), list(x[1::2]), "inn", at_once=at_once, **params)
    return torch.tensor([result.heldout.relative for result in results], dtype=torch.float64)


def together(x: Tensor) -> Tensor:
    """Ours: all pairs in one batched loop."""
    return _train(x, None)


def one_after_another(x: Tensor) -> Tensor:
    """The same pairs, a loop each."""
    return _train(x, 1)


def _contestants() -> dict[str, Contestant]:
    return {"ours": Contestant(together), "one by one": Contestant(one_after_another)}


@dataclass(frozen=True)
class PairsJob(harness.Job):
    """``pairs`` maps between drawn layers of ``n`` rows."""

    pairs: int = PAIRS
    n: int = 1600
    p: int = 384
    contestants: Callable[[], dict[str, Contestant]] = field(default=_contestants)
    timed: bool = True

    def data(self) -> Tensor:
        return harness.drifting_layers(2 * self.pairs, self.n, self.p)

    def tiny(self) -> PairsJob:
        return replace(self, pairs=2, n=40, p=8)

    def scaled(self, factor: float) -> PairsJob:
        return replace(self, n=max(40, int(self.n * factor)))

    def error(self, grid: np.ndarray, x: Tensor, contestant: Contestant) -> float:
        """Largest difference of two pairs' errors to the same pairs trained in float64."""
        exact = one_after_another(x[:4].double()).numpy()
        return float(np.abs(grid[:2] - exact).max())

    def floor_flops(self) -> float:
        half = self.p / 2
        weights = half * HIDDEN + HIDDEN * self.p
        rows = 0.8 * 0.9 * self.n  # held-out rows and those that decide when to stop are not learnt
        return self.pairs * EPOCHS * BLOCKS * rows * 6 * weights


JOBS: dict[str, PairsJob] = {"pairs16": PairsJob()}


@dataclass(frozen=True)
class SyntheticRow:
    """One method on one random map."""

    method: str
    seed: int
    train_mse: float
    train_relative: float
    heldout_mse: float
    heldout_relative: float
    times_best_linear: float  # best linear method's held-out mse / this one's
    n: int


def synthetic(seed: int) -> list[SyntheticRow]:
    """Every method on the random map of `seed`."""
    from simcore.align import align_pairs

    tokens, sentence = minilm.tokens(SENTENCES)
    learnt, judged = _rows(sentence, seed)
    y = random_map(tokens, seed)
    sides = ([tokens[learnt]], [y[learnt]])
    heldout = {"X_heldout": [tokens[judged]], "Y_heldout": [y[judged]]}
    found = {}
    for name, params in {**LINEAR, **TRAINED}.items():
        (found[name],) = align_pairs(*sides, name.partition(",")[0], **heldout, **params)
    # SVCCA's error leaves out what its truncation cut: no rival for the whole of Y.
    best = min(found[name].heldout.mse for name in LINEAR if name != "svcca")
    return [
        SyntheticRow(
            method=name,
            seed=seed,
            train_mse=result.train.mse,
            train_relative=result.train.relative,
            heldout_mse=result.heldout.mse,
            heldout_relative=result.heldout.relative,
            times_best_linear=best / result.heldout.mse,
            n=len(learnt),
        )
        for name, result in found.items()
    ]


def _rows(sentence: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Tokens to learn from and tokens to judge on, of different sentences."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(sentence), generator=generator)
    learning = (sentence < TRAINING_SENTENCES)[order]
    return order[learning][:ROWS], order[~learning]


def random_map(x: Tensor, seed: int) -> Tensor:
    """``f(x)``: a random invertible network on columns of variance 1."""
    from simcore.nn import CouplingINN

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        f = CouplingINN(x.shape[1], **TEACHER)
        std = x.std(0)
        return f((x - x.mean(0)) / std.clamp(min=1e-3 * float(std.max())))


def run_synthetic() -> None:
    """Run all seeds, print the table and append it to results/align_synthetic.csv."""
    torch.set_num_threads(harness.THREADS)
    path = harness.RESULTS / "align_synthetic.csv"
    for seed in SEEDS:
        rows = pd.DataFrame([asdict(row) for row in synthetic(seed)])
        print(rows.to_string(index=False, float_format="%.4g"), flush=True)
        described = rows.assign(**harness.machine())
        described.to_csv(path, mode="a", header=not path.exists(), index=False, float_format="%.4g")
    print(path.relative_to(harness.ROOT))


if __name__ == "__main__":
    if sys.argv[1:2] == ["synthetic"]:
        run_synthetic()
    else:
        harness.main({"align": JOBS}, __doc__ or "")
