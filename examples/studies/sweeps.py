"""Offline studies of a sweep file each: the three papers, a training run, and two architectures.

    python examples/studies/sweeps.py ren2023    # may be interrupted, and continues where it was
    python examples/studies/sweeps.py ren2023-trained
    python examples/studies/sweeps.py phang2021
    python examples/studies/sweeps.py phang2021-preset
    python examples/studies/sweeps.py wu2020
    python examples/studies/sweeps.py training-run
    python examples/studies/sweeps.py two-architectures

Rows land in ``examples/studies/results/<study>-offline.parquet``, with five significant digits, and
their means over models and pairs in the ``.csv`` beside it; figures in ``docs/figures``. The tables
of claims and, for Ren et al., tables 4 and 5 are printed for ``docs/results/experiments.md``.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import architectures
import trained_maps
from publish import RESULTS, ROOT, simcore, with_options

if TYPE_CHECKING:
    import pandas as pd

DIGITS = 5
# Figures of the sweep that docs/results/experiments.md shows.
FIGURES = {
    "ren2023": (
        "rt-models",
        "rt-alignment-mean-all-methods",
        "rt-alignment-mean-all-layers-linear",
        "rt-alignment-mean-all-layers-inn",
        "rt-alignment-attention-layers-linear",
        "rt-alignment-mean-all-within-linear",
        "rt-alignment-mean-all-across-linear",
        "rt-alignment-mean-all-complexity",
        "rt-injection",
    ),
    "ren2023-trained": (),
    "phang2021": (
        *("all-tasks-cka-biased-FT-FT", "all-tasks-cka-biased-FT-1-FT-2"),
        *("all-tasks-truncation", "all-tasks-skipping", "rt-models", "stsb-models"),
    ),
    "phang2021-preset": (),
    "wu2020": ("rt-models-ORIG-FT-localization", "rt-models-ORIG-FT-cka-word-last-biased"),
    "training-run": ("rt-ORIG-last-step-cka-mean-unbiased",),
    "two-architectures": ("rt-models-ORIG-cka-word-last-unbiased",),
}
LOSS_STEPS = (0, 41, 60, 87, 127, 1200)  # before, while and after the layers change at once
# Studies whose claims are judged, with the families of their models.
JUDGED = dict.fromkeys(
    ("ren2023", "ren2023-trained", "phang2021", "phang2021-preset", "wu2020"), ()
)
JUDGED |= {"two-architectures": ("BERT=bert*", "GPT-2=gpt2*")}


def main(study: str, out: Path, workers: int) -> None:
    """Run or continue a sweep, and publish what it made."""
    from simlab.results.reading import read_results

    file = ROOT / "examples" / "sweeps" / f"{study}-offline.toml"
    simcore("sweep", file, "--out", out, "--workers", workers, "--threads", 1)
    frame = rounded(read_results(out / "results"))
    name = f"{study}-offline"
    frame.to_parquet(RESULTS / f"{name}.parquet", index=False, compression="zstd")
    summaries = {"training-run": step_means, "two-architectures": architectures.summary}
    summary = summaries.get(study, means)(frame)
    summary.to_csv(RESULTS / f"{name}.csv", index=False)
    if study == "training-run":
        losses(out / "models").to_csv(RESULTS / "training-run-losses.csv", index=False)
    if study == "two-architectures":
        models = architectures.trained(out / "models", frame)
        models.to_csv(RESULTS / "two-architectures-models.csv", index=False)
        architectures.draw(summary, ROOT / "docs" / "figures" / "two-architectures.png")
    if study == "ren2023-trained":
        tables = {"maps": trained_maps.summary(frame), "settings": trained_maps.settings(frame)}
        for table, rows in tables.items():
            rows.to_csv(RESULTS / f"{study}-{table}.csv", index=False)
    for figure in FIGURES[study]:
        source = out / "figures" / f"{figure}.png"
        shutil.copy(source, ROOT / "docs" / "figures" / f"{study}-{figure}.png")
    if study == "ren2023":
        print(table_4(frame), table_5(frame), sep="\n\n")
    if study not in JUDGED:
        return
    families = with_options("--family", JUDGED[study])
    rows, judged = RESULTS / f"{name}.parquet", out / "claims.parquet"
    simcore("claims", rows, *families, "--out", judged, "--csv", "--overwrite")
    shutil.copy(out / "claims.csv", RESULTS / f"claims-{study}.csv")


def rounded(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with `DIGITS` significant digits, a fifth of the bytes of all digits."""
    values = frame["value"].map(lambda value: float(f"{value:.{DIGITS}g}"))
    return frame.assign(value=values)


def staged(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with columns for the stages of both models, the method, and the part."""
    options = frame["options"].fillna("{}").map(json.loads)
    return frame.assign(
        x=frame["stage_x"],
        y=frame["stage_y"],
        method=options.map(_method),
        rows=options.map(lambda found: found.get("rows", "")),
        same=(frame["label_x"] == frame["label_y"]).fillna(False),
    )


def _method(options: dict[str, str]) -> str:
    """Return the name of the method, and of its training where it is not the default."""
    names = [options.get("method", ""), options.get("training", "")]
    return ", ".join(name for name in names if name)


def means(frame: pd.DataFrame) -> pd.DataFrame:
    """Return mean, standard deviation and number over models and pairs of equal stages."""
    by = ["task", "experiment", "comparison", "measure", "kind", "method", "rows", "x", "y", "same"]
    groups = staged(frame).groupby([*by, "layer_x", "layer_y"], dropna=False)["value"]
    return groups.agg(["mean", "std", "count"]).reset_index().round(DIGITS)


def step_means(frame: pd.DataFrame) -> pd.DataFrame:
    """Return mean, standard deviation and number over seeds of each layer with itself, by step."""
    own = frame[(frame["layer_x"] == frame["layer_y"]) & (frame["label_x"] != frame["label_y"])]
    seeds = own["seed_x"] != own["seed_y"]
    own = own.assign(comparison=own["comparison"].mask(seeds, "between seeds"))
    groups = own.groupby(["comparison", "step_x", "layer_x"])["value"]
    return groups.agg(["mean", "std", "count"]).reset_index().round(DIGITS)


def losses(models: Path) -> pd.DataFrame:
    """Return the held-out loss of each seed at some steps, beside that of word frequencies."""
    import pandas as pd

    rows = []
    for step in LOSS_STEPS:
        for file in sorted(models.glob(f"*/checkpoint-{step}/pretraining.json")):
            measured = json.loads(file.read_text())
            seed = measured["recipe"]["seed"]
            rows.append((step, seed, measured["loss"], measured["unigram_loss"]))
    return pd.DataFrame(rows, columns=["step", "seed", "heldout_loss", "unigram_loss"]).round(3)


def table_4(frame: pd.DataFrame) -> str:
    """Return the errors of every method, mean over layers and pairs, before and after tuning."""
    rows = staged(frame)
    rows = rows[(rows["experiment"] == "alignment") & (rows["layer_x"] > 0)]
    rows = rows[rows["comparison"].str.startswith("table 4")]
    rows = rows[rows["measure"].isin(["alignment-mse", "alignment-error"])]
    by = ["x", "measure", "rows"]
    return markdown(rows.pivot_table("value", by, "method", aggfunc="mean", sort=False))


def table_5(frame: pd.DataFrame) -> str:
    """Return the accuracy of injections, mean and least over pairs."""
    rows = staged(frame)
    rows = rows[rows["experiment"] == "injection"]
    return markdown(rows.groupby("method", sort=False)["value"].agg(["mean", "min", "count"]))


def markdown(table: pd.DataFrame) -> str:
    """Return a table of numbers in Markdown."""
    table = table.round(4).reset_index()
    lines = [table.columns, ["---"] * len(table.columns), *table.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=FIGURES)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    main(options.study, options.out or Path("runs") / f"{options.study}-offline", options.workers)
