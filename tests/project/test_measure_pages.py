"""The pages of the measures claim what is computed, have one form, and their examples hold."""

import doctest
import importlib
import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import rows as bench_rows
from simcore import _measures as records
from simcore._measures.record import closure
from simlab.similarity.catalogue import MEASURES, OPTIONS

DOCS = Path(__file__).resolve().parents[2] / "docs"
sys.path.append(str(DOCS / "_ext"))  # where extensions find one another
invariances, variants, dot_panels, tables = map(
    importlib.import_module,
    ("measure_invariances", "measure_variants", "dot_panels", "measure_tables"),
)
FOLDER = DOCS / "measures"
OTHER_PAGES = {"index", "choosing", "contract", "devices", "numbers"}
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem not in OTHER_PAGES)
HEADINGS = [
    *("Formula", "Invariances", "Chance level", "Cost", "When to use it, and when not"),
    *("Pitfalls", "In Python", "On the command line", "Source"),
]
NUMBERS = {"∞": math.inf, "-∞": -math.inf, "√2": math.sqrt(2), "π/2": math.pi / 2, "π": math.pi}
EVERY_PAGE = pytest.mark.parametrize("page", PAGES)
EVERY_VARIANT = pytest.mark.parametrize(
    "variant",
    [
        # RTD takes seconds.
        pytest.param(v, id=v.label, marks=[pytest.mark.deep] if v.label == "RTD" else [])
        for v in variants.VARIANTS
    ],
)


def text_of(page):
    return (FOLDER / f"{page}.md").read_text()


def claims(page):
    """Return the rows of the first table of a page: by measure, a dict of cells."""
    lines = re.findall(r"^\|(.*)\|$", text_of(page).split("\n## ")[0], re.M)
    head, _, *rows = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def claimed(cell):
    """Return the changes of the first and of the second argument that a cell names, with all
    that they contain."""
    sides = dict(re.findall(r"([XY]): ([^;]+)", cell)) or {"X": cell, "Y": cell}
    return [closure(set(sides[side].split(", "))) for side in "XY"]


def number(word):
    return NUMBERS[word] if word in NUMBERS else float(word)


@EVERY_PAGE
def test_every_page_has_the_same_form(page):
    text = text_of(page)
    assert re.findall(r"^## (.*)$", text, re.M) == HEADINGS
    assert f"{{invariances}} {page}\n" in text
    assert list(claims(page)) == [variant.label for variant in variants.of_page(page)]
    assert re.search(r"^```python\n", text, re.M)
    assert re.search(r"^>>> ", text, re.M) or page == "attention"


@EVERY_VARIANT
def test_what_a_page_claims_is_what_is_computed(variant):
    claim = claims(variant.page)[variant.label]
    found = invariances.computed(variant)
    first, second = claimed(claim["invariant to"])
    assert first == found.ignores_first
    assert second == found.ignores_second
    if variant.label != "HSIC":
        assert float(claim["itself"]) == pytest.approx(found.itself, abs=1e-9)
        assert float(claim["itself"]) == (0 if variant.known.distance else 1)
    low, high = map(number, claim["range"].split(" to "))
    values = [*found.first.values(), *found.second.values(), found.chance]
    assert low - 1e-9 <= min(values)
    assert max(values) <= high + 1e-9


@EVERY_VARIANT
def test_what_a_page_claims_is_what_the_record_says(variant):
    claim = claims(variant.page)[variant.label]
    low, high = map(number, claim["range"].split(" to "))
    known = variant.known
    assert known.lowest - 0.01 <= low
    assert high <= known.highest + 0.01
    assert high == pytest.approx(known.highest, abs=0.01) or variant.label == "IMD"
    grid = variant(invariances.samples(variant.kind)[:4])
    assert known.symmetric == np.allclose(grid, grid.T, rtol=0, atol=1e-6)
    if variant.label == known.shown[0].label:  # options may change what a measure ignores
        of_y = known.invariant if known.invariant_y is None else known.invariant_y
        assert claimed(claim["invariant to"]) == [closure(known.invariant), closure(of_y)]


def test_a_wrong_claim_is_found():
    found = invariances.computed(variants.BY_LABEL["Procrustes"]).ignores_first
    assert claimed("translation, isotropic scaling, orthogonal map")[0] == found
    assert claimed("translation, isotropic scaling, invertible linear map")[0] != found
    assert claimed("isotropic scaling, orthogonal map")[0] != found
    first, second = claimed("X: translation; Y: orthogonal map")
    assert first == {"translation"}
    assert second == {"orthogonal map", "signs of neurons", "permutation of neurons"}


def test_every_measure_of_the_command_has_a_page_and_a_call():
    shown = {variant.measure for variant in variants.VARIANTS}
    assert shown == {*records.MEASURES, variants.MINIBATCH.name}
    named = " ".join(text_of(page).split("## On the command line")[1] for page in PAGES)
    for name in MEASURES:
        assert re.search(rf"(--measure |`){name}[ `]", named), name


@EVERY_PAGE
def test_commands_have_the_options_of_their_measures(page):
    for line in re.findall(r"^simcore grid .*$", text_of(page), re.M):
        name = re.search(r"--measure (\S+)", line)[1]
        flags = set(re.findall(r"--([a-z-]+)", line)) - {"measure", "out", "permutations"}
        known = MEASURES[name].options
        for flag in flags:
            option, value = flag.replace("-", "_"), re.search(rf"--{flag} (\S+)", line)[1]
            assert option in known
            value = float(value) if "." in value else int(value) if value.isdigit() else value
            assert OPTIONS[option][1](value)


@EVERY_PAGE
def test_examples_give_what_they_say(page):
    blocks = re.findall(r"^```pycon\n(.*?)^```", text_of(page), re.M | re.S)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page, page, 0)
    report = []
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(
        test, out=report.append
    )
    assert result.failed == 0, "".join(report)
    assert result.attempted > 0


def test_the_picture_says_its_values_in_words():
    variant = variants.BY_LABEL["neuronsim"]
    by_y, by_x = dot_panels.panels(variant, invariances.computed(variant))
    assert by_y.title == "neuronsim of X by T(X)"
    assert by_x.title == "neuronsim of T(X) by X"
    words = by_y.words()
    assert "1.00 without a change; translation 1.00, isotropic scaling 1.00" in words
    assert words.endswith(
        "Ignores translation, scaling of neurons, signs of neurons, permutation of neurons."
    )
    picture = by_y.svg()
    assert f'aria-label="{words}"' in picture
    assert picture.count('class="kept"') == len(by_y.ignored) == 5
    assert picture.count('class="moved"') == 4
    assert picture.count('class="chance"') == 1


def test_rows_of_the_study_are_found():
    cka = variants.BY_LABEL["CKA (linear, unbiased)"]
    row = tables.studied("digits", cka)[tables.BLOCKS]
    assert float(row["chance"]) == pytest.approx(1 / 8)
    studied = [v for v in variants.VARIANTS if any(tables.studied(s, v) for s in tables.SETS)]
    chosen = [tables.in_studies(v) for v in studied]
    found = {(v.measure, json.dumps(v.options) if v.options else "") for v in chosen}
    assert found == {(measure, options) for _, measure, options in tables.study()}


@pytest.mark.deep
def test_the_table_of_all_measures_says_what_they_ignore():
    line = next(line for line in tables.all_measures().splitlines() if "(cka.md)" in line)
    assert line.split(" | ")[1:7] == ["yes", "yes", "–", "yes", "yes", "–"]


def test_every_job_of_a_variant_is_one_of_bench():
    assert {variant.job for variant in variants.VARIANTS} - {""} <= set(bench_rows.jobs())


def test_the_page_of_grids_has_every_measure_and_option():
    page = (DOCS / "experiments" / "grid.md").read_text()
    assert "{command-measures}" in page
    assert "{command-options}" in page
    measures, options = tables.command_measures(), tables.command_options()
    for name, measure in MEASURES.items():
        (line,) = (one for one in measures.splitlines() if f"`{name}`" in one)
        assert ("a distance" in line) == measure.distance
        assert ("no `--permutations`" in line) == (not measure.paired)
        assert ("both directions" in line) == (not measure.symmetric)
        assert f"/{measure.page}.md)" in line
    assert "| `cca`, `pwcca`: all; `svcca`: 0.99 |" in options
    used = {option for measure in MEASURES.values() for option in measure.options}
    assert {f"--{option.replace('_', '-')}" for option in used} == set(
        re.findall(r"^\| `(--[a-z-]+)` \| \w", options, re.M)
    )


def test_numbers_are_short():
    wanted = {0.0: "0", 1e-8: "0", 1.23e-4: "1.2e-04", 0.00123: "0.0012", 0.5: "0.50"}
    wanted |= {-0.096: "-0.10", 12.345: "12.35", 123.4: "120"}
    assert {value: dot_panels.short(value) for value in wanted} == wanted
