"""The tables and the figure of `identification.py`, from its csv file alone.

    python examples/studies/identification_page.py

The tables go between the comments of ``docs/results/identification.md`` that name a set of models.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from publish import RESULTS, ROOT

PAGE = ROOT / "docs" / "results" / "identification.md"
FIGURE = ROOT / "docs" / "figures" / "identification.png"
UNSURE = 0.05  # p-values from here on are marked
MARK = "†"
TITLES = {
    "digits": "ResNets, digits",
    "rt": "MiniLM, fine-tuned",
    "pretrained": "small BERTs, pretrained",
    "pretrained-rt": "small BERTs, fine-tuned",
}
# Criteria: the heading of a column, and the title and chance level of a panel.
COLUMNS = {
    "identification": "identified",
    "identification of blocks": "blocks alone",
    "order": "in order",
    "disagreement": "disagreement",
    "divergence": "divergence",
    "accuracy": "accuracy",
}
PANELS = {
    "identification": "layers\nidentified",
    "identification of blocks": "blocks\nidentified",
    "order": "triples\nin order",
    "disagreement": "agreement with\nanswers",
    "accuracy": "agreement with\naccuracy",
}
IDENTIFIED = ("identification", "identification of blocks")
CALIBRATED = (*IDENTIFIED, "order")
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


def short(value: float) -> str:
    """Return a number with two decimals, or two digits, without a leading zero."""
    if not np.isfinite(value):
        return "–"
    text = f"{value:.2f}" if abs(value) < 100 else f"{value:.3g}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def cell(row: pd.Series) -> str:
    """Return an estimate, its interval, and the mark of a large p-value."""
    if not np.isfinite(row["estimate"]):
        return "–"
    bounds = f"[{short(row['low'])}, {short(row['high'])}]"
    return f"{short(row['estimate'])} {bounds}{MARK if row['pvalue'] >= UNSURE else ''}"


def table(rows: pd.DataFrame) -> str:
    """Return the table of one set of models in Markdown, the best measure first."""
    found = set(rows["criterion"])
    if rows["chance"][rows["criterion"].isin(IDENTIFIED)].nunique() == 1:
        found -= {"identification of blocks"}  # all layers are blocks
    there = [criterion for criterion in COLUMNS if criterion in found]
    heads = ["measure"]
    for criterion in there:
        heads += [COLUMNS[criterion]] + ["calibrated"] * (criterion in CALIBRATED)
    heads += ["same layer", "calibrated", "seconds"]
    lines = [heads, ["---"] * len(heads)]
    by_name = {name: part.set_index("criterion") for name, part in rows.groupby("name", sort=False)}
    for name in ranked(rows):
        part = by_name[name]
        line = [name]
        for criterion in there:
            line.append(cell(part.loc[criterion]))
            if criterion in CALIBRATED:
                line.append(short(part.loc[criterion, "calibrated"]))
        same = part.loc["same layer"]
        line += [short(same["estimate"]), short(same["calibrated"]), f"{same['seconds']:.2g}"]
        lines.append(line)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def ranked(rows: pd.DataFrame) -> list[str]:
    """Return the names of all measures, those first that identify most blocks on average."""
    identified = rows[rows["criterion"] == "identification of blocks"]
    means = identified.groupby("name", sort=False)["estimate"].mean()
    return list(means.sort_values(ascending=False, kind="stable").index)


def tables(rows: pd.DataFrame) -> dict[str, str]:
    """Return the table of every set of models."""
    return {name: table(part) for name, part in rows.groupby("models", sort=False)}


def with_tables(page: str, found: dict[str, str]) -> str:
    """Return the text of the page with these tables between the comments that name their set."""
    for name, text in found.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = page.partition(start)
        _, marked, after = rest.partition(end)
        if not marked:
            raise ValueError(f"{PAGE}: wanted {start.strip()} and {end}, found no such comments")
        page = f"{before}{start}{text}\n{end}{after}"
    return page


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
                dots = {"color": style.color, "marker": style.marker, "markersize": 3.5}
                axis.plot(part["estimate"], places, linestyle="", label=TITLES[name], **dots)
                axis.hlines(places, part["low"], part["high"], color=style.color, linewidth=1.0)
                colour = style.color if criterion in IDENTIFIED else "0.4"
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


def publish_page(path: Path) -> None:
    """Write the tables into the page, and draw the figure."""
    from simlab.store.files import write_bytes

    rows = read_rows(path)
    page = with_tables(PAGE.read_text("utf-8"), tables(rows))
    write_bytes(PAGE, page.encode())
    draw(rows, FIGURE)


if __name__ == "__main__":
    publish_page(RESULTS / "identification.csv")
