"""Whole tables of drawn models for `verdict_errors.py`, one for each kind of units.

`corrected_verdicts` reads each table as `simcore claims` does: fine-tunings on twelve tasks,
seeds of two base models, eight of the 300 pairs of 25 models, and rows with intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, product

import numpy as np

from drawn_rows import BY_NAME, LINEAR, ratio, row
from simlab.evidence.claim import MODELS, RUNS, TASKS
from simlab.evidence.rows import ClaimOptions, tasks_of
from simlab.evidence.verdicts import FAILS, HOLDS, UNDECIDED, Verdict, corrected_verdicts, verdicts
from simlab.results.results import FREEZING, GRID, ORIG, TRUNCATIONS, ResultRow, to_frame
from simlab.similarity.catalogue import MEASURES

SIMILARITIES = [name for name, one in MEASURES.items() if not one.distance]
LAYERS, TEXTS = 12, 0.005  # TEXTS: the deviation of a metric over the examples
Rows = Iterator[ResultRow]


def _twelve_tasks(draw: np.random.Generator, effect: float) -> Rows:
    """Yield two fine-tunings of one model on each task; the effect differs by task and by seed."""
    for task in range(12):
        gain = draw.normal(0.1 * effect, 0.03)
        for seed, layer in product((1, 2), range(5)):
            orig = 0.6 + 0.03 * layer + draw.normal(0, 0.01)
            for mode, value in (
                ("tuned", orig + gain + draw.normal(0, 0.01)),
                ("tuned-orig", orig),
            ):
                names = {"task": f"task {task}", "layer_x": layer, "seed_x": seed}
                yield row(TRUNCATIONS[mode], value, "bert", **names)


def _changes(change: np.ndarray, base: str, **names: str | int) -> Rows:
    for layer, value in enumerate(0.5 - 0.01 * change, 1):
        places = {"layer_x": layer, "layer_y": layer, "stage_y": ORIG}
        yield row(GRID, value, base, base, **{"measure": "cka"} | names | places)


def _seeds_of_two_bases(draw: np.random.Generator, effect: float) -> Rows:
    """Yield the same of five pretraining seeds each, which differ from their base by noise."""
    for base in ("bert", "xlnet"):
        common = np.cumsum(draw.normal(effect, 1.0, LAYERS))
        for seed in range(5):
            change = common + draw.normal(0, 0.5, LAYERS)
            labels = {"label_x": f"{base}[{seed}]-FT", "label_y": f"{base}[{seed}]-ORIG"}
            yield from _changes(change, base, seed_x=seed, seed_y=seed, **labels)


def _many_trends(draw: np.random.Generator, effect: float) -> Rows:
    """Yield changes of eight models by twenty measures, which have nothing in common."""
    for model, measure in product("ABCDEFGH", SIMILARITIES[:20]):
        change = np.cumsum(draw.normal(effect, 1.0, LAYERS))
        yield from _changes(change, model, label_x=f"{model}-FT", label_y=model, measure=measure)


def _eight_pairs(draw: np.random.Generator, effect: float) -> Rows:
    pairs = list(combinations([f"model {number}" for number in range(25)], 2))
    some = [pairs[at] for at in draw.choice(len(pairs), 8, replace=False)]
    errors = ratio(0.0, -0.5, 0.1, ({"method": "inn"}, LINEAR), pairs=lambda _: some)
    yield from errors(draw, sorted({name for pair in some for name in pair}), effect)


def _examples(draw: np.random.Generator, effect: float) -> Rows:
    """Yield metrics of five seeds on the same texts, by which all with frozen bottom are off."""
    shift = draw.normal(0, TEXTS)
    for seed in range(5):
        top = draw.normal(0.7, 0.03)
        bottom = top + draw.normal(0.05 * effect, 0.02) + shift
        yield row(FREEZING, top, "base", label_x="top:2", seed_x=seed)
        ends = {"low": bottom - 1.96 * TEXTS, "high": bottom + 1.96 * TEXTS}
        yield row(FREEZING, bottom, "base", label_x="bottom:2", seed_x=seed, **ends)


# For each claim: what a table is, the kind and number of units, the strength at the least effect.
Design = tuple[str, Callable[[np.random.Generator, float], Rows], str, float]
DESIGNS: dict[str, Design] = {
    "12 tasks": ("tuned-beats-orig", _twelve_tasks, TASKS, 0.1),
    "8 of 300 pairs": ("inn-beats-linear", _eight_pairs, MODELS, 0.1),
    "5 seeds, error over examples": ("freeze-bottom", _examples, RUNS, 0.2),
    "5 seeds of 2 base models": ("top-layers-change", _seeds_of_two_bases, MODELS, 0.172),
}

# Tables of many findings of one claim, with the strength at the least effect.
PAGES: dict[str, tuple[str, Callable[[np.random.Generator, float], Rows], float]] = {
    "page of 20 rows, 8 models": ("top-layers-change", _many_trends, 0.162)
}


def found_in_table(name: str, draw: np.random.Generator, effect: float) -> Verdict:
    """Return the verdict on the claim of one design that has the units of this design."""
    claim, build, unit, _ = DESIGNS[name]
    tasks = tasks_of(to_frame(build(draw, effect)), ClaimOptions())
    (found,) = [one for one in verdicts(BY_NAME[claim], tasks) if one.unit == unit]
    return found


def verdict_of_page(name: str, draw: np.random.Generator, effect: float) -> str:
    """Return "holds" if any verdict of a page is so after Holm's correction, or else "fails"."""
    claim, build, _ = PAGES[name]
    found = corrected_verdicts(to_frame(build(draw, effect)), [BY_NAME[claim]], ClaimOptions())
    return next((one for one in (HOLDS, FAILS) if one in {v.verdict for _, v in found}), UNDECIDED)
