"""Tables of the measures as Markdown: their costs, and the table of all.

What a grid takes comes from the rows of bench (`measured`), what a measure ignores is computed
(`measure_invariances`), and how well it does is in the rows of the identification study and of
`examples/judge`.
"""

from __future__ import annotations

import csv
import functools
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import measured
from dot_panels import short
from measure_invariances import computed
from measure_variants import VARIANTS, Variant, of_page
from typer.main import get_command

from simlab.cli import make_app
from simlab.similarity.catalogue import MEASURES as COMMAND
from simlab.similarity.catalogue import OPTIONS

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "examples" / "judge"))  # its modules find one another there
RESULTS = ROOT / "examples" / "studies" / "results"
STUDY, JUDGED = RESULTS / "identification.csv", RESULTS / "judge.csv"
BLOCKS = "identification of blocks"
COLUMNS = {
    "translation": "shift",
    "isotropic scaling": "scale",
    "scaling of neurons": "scale of neurons",
    "permutation of neurons": "order of neurons",
    "orthogonal map": "rotation",
    "invertible linear map": "linear map",
}
SETS = {"digits": "ResNets", "pretrained": "BERTs"}
DOMAINS = {"digits": "judge, digits", "reviews": "judge, reviews"}
YES, NO = "yes", "–"
OF_STUDY = (
    "In the study: one grid of all layers of the study of identification, in one thread of a busy "
    "machine, in units of the time of linear CKA."
)
Row = dict[str, str]


@functools.cache
def study() -> dict[tuple[str, str, str], dict[str, Row]]:
    """Return the rows of the study by set of models, measure and options, then by criterion."""
    found: dict[tuple[str, str, str], dict[str, Row]] = defaultdict(dict)
    with STUDY.open(newline="") as file:
        for row in csv.DictReader(file):
            found[row["models"], row["measure"], row["options"]][row["criterion"]] = row
    return dict(found)


@functools.cache
def mean_ranks() -> dict[str, dict[str, float]]:
    """Return the mean rank of each measure of simcore in each domain of `examples/judge`."""
    import pandas as pd

    import scores

    rows = pd.read_csv(JUDGED)
    rows = rows[~rows["asked"]].drop(columns=["asked", "ranked", "rank"])
    again = scores.ranked(rows.to_dict("records"), ())
    return {
        str(domain): scores.mean_ranks(part).to_dict() for domain, part in again.groupby("domain")
    }


def in_studies(variant: Variant) -> Any:
    """Return a measure with the options that it has in the study and in `examples/judge`."""
    import measures

    short = measures.SHORT.get(variant.measure, {})
    return measures.Variant(variant.measure, {**variant.options, **short})


def studied(models: str, variant: Variant) -> dict[str, Row]:
    """Return the rows of one measure on one set of models; none where it was not studied."""
    chosen = in_studies(variant).options
    options = json.dumps(chosen) if chosen else ""
    return study().get((models, variant.measure, options), {})


def relative_cost(variant: Variant) -> str:
    """Return the time of a grid in the study in units of that of linear CKA.

    On the ResNets; of measures that were not computed there, on the MiniLMs.
    """
    for models in ("digits", "rt"):
        rows = studied(models, variant)
        if rows:
            cka = study()[models, "cka", '{"kernel": "linear", "estimator": "biased"}']
            return f"{float(rows[BLOCKS]['seconds']) / float(cka[BLOCKS]['seconds']):.2g}"
    return ""


def costs(page: str) -> str:
    """Return what the measures of a page take, in bench and in the study, and a line about both."""
    lines, inputs = [], []
    for variant in of_page(page):
        rows = _newest(variant.job)
        cells = [""] * (2 + len(measured.COLUMNS))
        if "ours" in rows:
            ours = rows["ours"]
            time = f"{measured.seconds(ours['median_s'])}, {measured.processor(ours)}"
            cells = [time, *measured.ratios(rows), measured.memory(rows)]
            inputs.append(measured.described(variant.job))
        cost = relative_cost(variant)
        cells.append(f"{cost} x CKA" if cost else "")
        if any(cells):
            lines.append([variant.label, *cells])
    head = ["measure", "our time", *measured.COLUMNS, "peak memory", "in the study"]
    about = " and ".join(dict.fromkeys(inputs))
    words = f"Benchmarks: {about}; float32, two threads. Others are in units of our time."
    return "\n\n".join([measured.table(head, lines), f"{words} {OF_STUDY}" if about else OF_STUDY])


def _newest(job: str) -> dict[str, Row]:
    return measured.newest(measured.family(job)).get(job, {}) if job else {}


def all_measures() -> str:
    """Return the table of all measures by what they ignore, by cost, and by two studies."""
    lines = []
    for variant in VARIANTS:
        found = computed(variant)
        cells = [f"[{variant.label}]({variant.page}.md)"]
        for change in COLUMNS if variant.kind == "layers" else ():
            sides = [
                name
                for name, ignored in (("X", found.ignores_first), ("Y", found.ignores_second))
                if change in ignored
            ]
            cells.append(YES if len(sides) == 2 else "".join(sides) or NO)
        cells += [""] * (1 + len(COLUMNS) - len(cells))
        cells += [f"{found.itself:.2g}", short(found.chance), relative_cost(variant)]
        for models in SETS:
            row = studied(models, variant).get(BLOCKS)
            cells.append(short(float(row["estimate"])) if row else "")
        for domain in DOMAINS:
            rank = mean_ranks()[domain].get(in_studies(variant).label)
            cells.append("" if rank is None else f"{rank:.0f}")
        lines.append(cells)
    heads = ["itself", "chance", "cost", *SETS.values(), *DOMAINS.values()]
    return measured.table(["measure", *COLUMNS.values(), *heads], lines)


def command_measures() -> str:
    """Return the table of the measures of `simcore grid`: what they compare, and how."""
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name, measure in COMMAND.items():
        taken = "representations" if measure.takes_representations else "attention"
        taken += ", attention" if measure.takes_representations and measure.takes_attention else ""
        notes = ["symmetric" if measure.symmetric else "both directions are stored"]
        notes += ["a distance: 0 is a layer with itself"] if measure.distance else []
        notes += ["layers of one width"] if measure.equal_widths else []
        notes += [] if measure.paired else ["no `--permutations`"]
        groups[taken, "; ".join(notes), measure.page].append(f"`{name}`")
    lines = [
        [", ".join(names), taken, notes, f"[{page}](../measures/{page}.md)"]
        for (taken, notes, page), names in groups.items()
    ]
    return measured.table(["measure", "input", "values", "page"], lines)


def command_options() -> str:
    """Return the table of the options of these measures, with their defaults."""
    command = get_command(make_app()).commands["grid"]  # type: ignore[attr-defined]
    texts = {parameter.opts[0]: parameter.help for parameter in command.params}
    lines = []
    for option in OPTIONS:
        flag = f"--{option.replace('_', '-')}"
        defaults: dict[str, list[str]] = defaultdict(list)
        for name, measure in COMMAND.items():
            if option in measure.options:
                defaults[_default(measure.options[option])].append(f"`{name}`")
        uses = "; ".join(f"{', '.join(names)}: {default}" for default, names in defaults.items())
        lines.append([f"`{flag}`", texts[flag], uses])
    return measured.table(["option", "meaning", "measures, with their defaults"], lines)


def _default(value: object) -> str:
    return "all" if value is None else "no" if value is False else str(value)
