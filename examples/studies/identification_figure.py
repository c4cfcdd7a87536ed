"""The figure of `identification.py`, from its csv file alone.

python examples/studies/identification_figure.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from publish import RESULTS, ROOT

FIGURE = ROOT / "docs" / "figures" / "identification.png"
TITLES = {
    "digits": "ResNets, digits",
    "rt": "MiniLM, fine-tuned",
    "pretrained": "small BERTs, pretrained",
    "pretrained-rt": "small BERTs, fine-tuned",
}
# The title of the panel of each criterion.
PANELS = {
    "identification": "layers\nidentified",
    "identification of blocks": "blocks\nidentified",
    "order": "triples\nin order",
    "disagreement": "agreement with\nanswers",
    "accuracy": "agreement with\naccuracy",
}
IDENTIFIED = ("identification", "identification of blocks")
NAMES = {"cca": "CCA", "rsm-difference": "RSM difference", "knn-mutual": "mutual k-NN"}
WORDS = {"r2": "R²", "rbf": "RBF", "frobenius": "Frobenius", "spearman": "Spearman"}
WORDS |= {"pearson": "Pearson", "euclidean": "Euclidean"}


def read_rows(path: Path) -> pd.DataFrame:
    """Return the rows of the csv file, with a column for the name of each measure."""
    rows = pd.read_csv(path, keep_default_na=False, na_values=["nan"])
    names = [label(*pair) for pair in zip(rows["measure"], rows["options"], strict=True)]
    return rows.assign(name=names)


def label(measure: str, options: str) -> str:
    """Return the name of a measure with its options."""
    from simlab.similarity.catalogue import MEASURES

    known = MEASURES[measure].label if measure in MEASURES else measure
    found = json.loads(options) if options else {}
    words = [
        WORDS.get(value, value) if isinstance(value, str) else f"{key} {value:g}"
        for key, value in found.items()
    ]
    return NAMES.get(measure, known) + (f" ({', '.join(words)})" if words else "")


def ranked(rows: pd.DataFrame) -> list[str]:
    """Return the names of all measures, those first that identify most blocks on average."""
    identified = rows[rows["criterion"] == "identification of blocks"]
    means = identified.groupby("name", sort=False)["estimate"].mean()
    return list(means.sort_values(ascending=False, kind="stable").index)


def draw(rows: pd.DataFrame, path: Path) -> None:
    """Draw all criteria of all measures on all sets of models."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from simlab.figures.style import PNG_DPI, STYLE, look

    names, sets = ranked(rows), [name for name in TITLES if name in set(rows["models"])]
    shifts = np.linspace(-0.25, 0.25, len(sets)) if len(sets) > 1 else [0.0]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 1.2 + 0.25 * len(names)), layout="constrained")
        axes = figure.subplots(1, len(PANELS), sharey=True)
        for axis, (criterion, title) in zip(axes, PANELS.items(), strict=True):
            for index, (name, shift) in enumerate(zip(sets, shifts, strict=True)):
                part = rows[(rows["models"] == name) & (rows["criterion"] == criterion)]
                part = part.set_index("name").reindex(names)
                style, places = look(index), np.arange(len(names)) + shift
                dots = {"color": style["color"], "marker": style["marker"], "markersize": 3.5}
                axis.plot(part["estimate"], places, linestyle="", label=TITLES[name], **dots)
                axis.hlines(places, part["low"], part["high"], color=style["color"], linewidth=1.0)
                colour = style["color"] if criterion in IDENTIFIED else "0.4"
                line = {"color": colour, "linestyle": ":", "linewidth": 0.8}
                axis.axvline(part["chance"].median(), **line)  # attention has a layer less
            axis.set_title(title)
            axis.grid(axis="y", color="0.92", linewidth=0.6)
            axis.set_axisbelow(True)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_yticks(range(len(names)), names)
        axes[0].set_ylim(len(names) - 0.5, -0.5)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(sets), frameon=False)
        figure.savefig(path, dpi=PNG_DPI)


if __name__ == "__main__":
    draw(read_rows(RESULTS / "identification.csv"), FIGURE)
