"""Which protocol of injection makes the linear map fail (Ren et al. 2023, section 4.5 and table 5).

    python examples/studies/functional.py --task rt  # first: its fine-tuned models
    python examples/studies/injection.py             # may be interrupted

Every fine-tuned model continues from the last layer of every other. The maps are fitted on the
tokens that they are applied to, or on means over the tokens of texts; they learn as ours or as in
the authors' code. Results land in ``examples/studies/results/injection-rt.csv``, the figure in
``docs/figures``. The committed ones have three more protocols, which an earlier version could
replay: maps fitted on means over all positions, padding included, and the classifier of B after
the layers of A.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from publish import SEEDS, publish, simcore, with_options

TASK = "rt"
CLOSED, LEARNT = ("linear", "cca", "pwcca"), ("linear-gd", "mlp", "inn")
BASELINES = (*("itself", "identity"), *("random-classifier", "random-embeddings", "random-labels"))
# As many batches for all maps that learn, whatever the number of rows.
OURS = ("--steps", 500)
# The rate of the authors' training falls by 1 % a batch: the first 300 of its 3,000 batches move a
# weight by 95 % of all.
AUTHORS = ("--training", "ren2023", "--steps", 300)
# At the last layer the head reads the classifier token alone. Maps that are fitted on means do not
# depend on the tokens that they are applied to, and neither do the values.
PROTOCOLS = {
    "tokens-cls": (("--tokens", "cls", *OURS), (*CLOSED, *LEARNT, *BASELINES)),
    "tokens-all": (("--tokens", "all", *OURS), (*CLOSED, *LEARNT)),
    "mean": (("--fit-on", "mean", *OURS), (*CLOSED, *LEARNT)),
    "authors-training": (("--fit-on", "mean-all", "--tokens", "all", *AUTHORS), (*CLOSED, *LEARNT)),
}


def run(models: Path, folder: Path) -> None:
    """All protocols; each continues where it was."""
    checkpoints = [models / f"none-seed-{seed}" for seed in SEEDS]
    results = folder / "results"
    for name, (protocol, methods) in PROTOCOLS.items():
        simcore(
            *("inject", *checkpoints, TASK, *protocol, *with_options("--method", methods)),
            *with_options("--label", tuple(f"FT[{seed}]" for seed in SEEDS)),
            *("--out", results / name),
        )
    figures = {f"{TASK}-injection.png": f"{TASK}-injection-protocols.png"}
    publish([results], folder / "figures", f"injection-{TASK}.csv", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--models", type=Path, default=Path("runs/functional/rt/freezing/checkpoints")
    )
    parser.add_argument("--out", type=Path, default=Path("runs/injection"))
    options = parser.parse_args()
    run(options.models, options.out)
