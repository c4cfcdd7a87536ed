"""Tables, a figure and a page of the scores."""

from __future__ import annotations

import base64
import html
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from scores import RANKED, VIOLATIONS, mean_ranks

OWN, OTHERS = "#D55E00", "0.6"  # colours of the measures that were asked for, and of all others
STYLE = {"font.size": 9, "axes.linewidth": 0.8, "savefig.bbox": "tight", "savefig.pad_inches": 0.05}
LEGEND = """Chance is the score of a measure that says nothing.
p-values permute networks, answers or layers; 95 % intervals are over networks.
A dash stands for a score that is undefined, and ranks last. Violation rates are good where low.
Ranks are close together: compare intervals before you say that one measure is better."""
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<style>body {{ font: 14px sans-serif; margin: 2em }} img {{ max-width: 100% }}
table {{ border-collapse: collapse }} td, th {{ text-align: right; padding: 2px 8px; border: 0 }}
tbody th {{ text-align: left; font-weight: normal }}</style></head>
<body><h1>{title}</h1><pre>{legend}</pre>{body}</body></html>"""


def asked_of(frame: pd.DataFrame) -> list[str]:
    """Return the measures that were asked for."""
    return list(frame.loc[frame["asked"], "measure"].unique())


def tables_of(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return every table of texts by its title; `>` stands before a measure that was asked for."""
    tables, asked = {}, asked_of(frame)
    means = {"all": mean_ranks(frame)}
    for domain, part in frame.groupby("domain", sort=False):
        means[domain] = mean_ranks(part)
        values = part[part["ranked"]].pivot(index="measure", columns="test", values="value")
        ranks = values.loc[means[domain].index, [*RANKED]].map(number)
        ranks.insert(0, "mean rank", means[domain].map("{:.1f}".format))
        tables[f"{domain}: mean ranks, and the scores that rank"] = ranks
        part = part.assign(name=part["test"] + ": " + part["score"])
        for measure in asked:
            own = part[part["measure"] == measure].set_index("name")
            shown = own[["value", "low", "high", "chance", "rank"]].map(number)
            shown.insert(4, "p", own["pvalue"].map("{:.4f}".format).replace("nan", "-"))
            shown["undefined"] = own["undefined"].map(str) + " of " + own["pairs"].map(str)
            tables[f"{domain}: every score of {measure}"] = shown
        rest = part[~part["test"].isin(RANKED)]
        values = rest.pivot(index="measure", columns="name", values="value").map(number)
        values = values.loc[means[domain].index, rest["name"].unique()]
        tables[f"{domain}: what the value depends on, and what it costs"] = values
    if len(means) > 2:
        tables["mean ranks"] = pd.DataFrame(means).loc[means["all"].index].map(number)
    marks = {name: f"> {name}" for name in asked}
    return {title: table.rename(index=marks).rename_axis(None) for title, table in tables.items()}


def number(value: float) -> str:
    """Return a score as it is printed; a dash where it is undefined."""
    if pd.isna(value):
        return "-"
    return f"{value:z.2f}" if value == 0 or 0.005 <= abs(value) < 1000 else f"{value:.1e}"


def draw(frame: pd.DataFrame, path: Path) -> None:
    """Draw the score of each measure that ranks it in each test, with interval and chance."""
    places = {name: place for place, name in enumerate(reversed(mean_ranks(frame).index))}
    asked = asked_of(frame)
    with mpl.rc_context(STYLE):
        size = (2.6 + 1.25 * len(RANKED), 1.1 + 0.17 * len(places))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(1, len(RANKED), sharey=True, squeeze=False)[0]
        for axis, (test, score) in zip(axes, RANKED.items(), strict=True):
            rows = frame[frame["ranked"] & (frame["test"] == test)]
            for one in rows.itertuples():
                own, place = one.measure in asked, places[one.measure]
                colour = OWN if own else OTHERS
                axis.plot([one.low, one.high], [place] * 2, color=colour, linewidth=1.0)
                axis.plot(one.value, place, "o", color=colour, markersize=4 if own else 3)
            axis.axvline(rows["chance"].iloc[0], color="0.3", linestyle=":", linewidth=0.8)
            axis.set_title(test, fontsize=8)
            axis.set_xlabel(f"{score}\nlow is good" if score == VIOLATIONS else score, fontsize=8)
            axis.tick_params(labelsize=7)
            axis.grid(axis="x", color="0.92", linewidth=0.6)
            axis.set_axisbelow(True)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_yticks(list(places.values()), list(places), fontsize=7)
        axes[0].set_ylim(-0.6, len(places) - 0.4)
        for tick, name in zip(axes[0].get_yticklabels(), places, strict=True):
            if name in asked:
                tick.set(color=OWN, fontweight="bold")
        figure.savefig(path, dpi=200)


def write(frame: pd.DataFrame, out: Path) -> None:
    """Write the scores, a figure of each domain, and a page that loads and runs nothing."""
    out.mkdir(parents=True, exist_ok=True)
    frame.to_csv(out / "scores.csv", index=False, float_format="%.5g")
    tables, body = tables_of(frame), []
    for domain, part in frame.groupby("domain", sort=False):
        draw(part, out / f"{domain}.png")
        picture = base64.b64encode((out / f"{domain}.png").read_bytes()).decode()
        body.append(f'<h2>{domain}</h2><img alt="" src="data:image/png;base64,{picture}">')
    for title, table in tables.items():
        body.append(f"<h3>{html.escape(title)}</h3>{table.to_html(border=0)}")
    title = html.escape(f"Measures of similarity, judged: {', '.join(asked_of(frame))}")
    page = PAGE.format(title=title, legend=LEGEND, body="\n".join(body))
    (out / "judge.html").write_text(page)
