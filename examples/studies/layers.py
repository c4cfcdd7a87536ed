"""Layers before and after fine-tuning, as Wu et al. 2020 compare them: MiniLM-L6, rt, 3 seeds.

    python examples/studies/functional.py --task rt  # first: its fine-tuned models are compared
    python examples/studies/layers.py                # may be interrupted

Joint grids of the pretrained model and of the fine-tuned models (their figures 1, 5 and 6): CKA of
classifier tokens, with intervals over sentences; neuronsim and SVCCA of words; attention; and
localization scores of words by both definitions (their figure 7 has the standardized one). Results
land in ``examples/studies/results/layers-rt.csv``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from publish import MODEL, SEEDS, publish, simcore

TASK = "rt"
SENTENCES = 200  # whose words and attention are compared
# Kind of rows, how many sentences (None: all), and the measures of its joint grids.
KINDS = (
    ("cls", None, (("cka", "--estimator", "biased", "--bootstrap", 200),)),
    ("word-last", SENTENCES, (("neuronsim",), ("svcca",))),
    ("attention", SENTENCES, (("attention-js",),)),
)


def run(models: Path, folder: Path) -> None:
    """All steps; each continues where it was."""
    checkpoints = {f"FT[{seed}]": (models / f"none-seed-{seed}", seed) for seed in SEEDS}
    results = folder / "results"
    for kind, limit, measures in KINDS:
        folders = []
        for label, (model, seed) in {"ORIG": (MODEL, None), **checkpoints}.items():
            folders.append(folder / kind / label.replace("[", "-").rstrip("]").lower())
            options = ["--label", label, "--kind", kind, "--out", folders[-1]]
            options += [] if seed is None else ["--seed", seed]
            options += [] if limit is None else ["--limit", limit]
            simcore("extract", model, TASK, *options)
        for measure, *more in measures:
            out = results / f"{measure}.parquet"
            joint = ("--joint", "--comparison", "ORIG + FT", "--measure", measure, *more)
            simcore("grid", *folders, *joint, "--out", out)
    scores = [folder / "localization.parquet", folder / "localization-standardized.parquet"]
    for out, more in zip(scores, ([], ["--standardize"]), strict=True):
        simcore("localize", results, "--out", out, "--overwrite", *more)
    publish([results, *scores], folder / "figures", f"layers-{TASK}.csv", {})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--models", type=Path, default=Path("runs/functional/rt/freezing/checkpoints")
    )
    parser.add_argument("--out", type=Path, default=Path("runs/layers"))
    options = parser.parse_args()
    run(options.models, options.out)
