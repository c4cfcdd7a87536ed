"""The numbers that a browser shows are those of the results, in every cell of every grid.

Grids that differ in seeds alone are one grid, with a plane for each number over seeds.
"""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib import colormaps

from simlab.figures.table import without_copies
from simlab.results.reading import read_table
from simlab.results.results import FT, ORIG, to_frame
from support.lab.pages import CURVES, HOSTILE, JOINT, cells_of
from support.lab.result_rows import grid, joint_grid

TUNED = {"base_x": "minilm", "stage_x": FT, "base_y": "minilm"}
KEYS = ["layer_x", "layer_y"]


def every_cell(view):
    """Walk through all grids by the drop-downs of panel A, and return their cells."""
    found = {}

    def walk(labels, names):
        if labels:
            for choice in view.choice(labels[0]).locator("option").all_inner_texts():
                if re.search(r", \d+ (seed|pair)s", choice):  # their means are tested below
                    continue
                view.choose(labels[0], choice)
                walk(labels[1:], (*names, choice))
            return
        for row in view.copied():
            numbers = [float(row.get(name) or "nan") for name in ("value", "low", "high", "pvalue")]
            layers = (row["label_x"], int(row["layer_x"]), row["label_y"], int(row["layer_y"]))
            found[(*names[:3], names[3].split(":")[0], *layers)] = numbers

    walk(["Task", "Representation", "Measure", "Grid"], ())
    return found


def made():
    """Return rows of two measures, of which one has intervals and p-values."""
    rows = [
        replace(row, low=row.value - 0.1, high=row.value + 0.2, pvalue=row.layer_x / 10)
        for row in joint_grid(["A", "B"], measure="cka", estimator="biased", kernel="linear")
    ]
    rows += [replace(row, kind="word-last") for row in grid("A-B", "A", "B")]
    return rows + grid("A-C", "A", "C", seed=1, measure="svcca", task="stsb")


@pytest.mark.parametrize(
    "files", [None, pytest.param([JOINT, CURVES], marks=pytest.mark.deep)], ids=["made", "studies"]
)
def test_every_cell_equals_the_results(opened, written, request, files):
    wanted = cells_of(without_copies(read_table(files or to_frame(made()))))
    page = request.getfixturevalue("studies") if files else written(made())
    found = every_cell(opened(page))
    assert found.keys() == wanted.keys()
    shown, given = (np.array([table[key] for key in wanted]) for table in (found, wanted))
    assert np.isfinite(given[:, 1]).any()
    np.testing.assert_allclose(shown, given.astype(np.float32), rtol=1e-7, atol=0)


def test_every_cell_has_the_colour_of_its_value(opened, written):
    """Through the colour map and back: a colour is off by less than one of its 256 steps.

    In the order of a clustering. The last colour is that of equal layers, also of distances.
    """
    rows = [row for row in grid("A-B", "A", "B", measure="angular") if row.layer_x < 3]
    value = {(row.layer_x, row.layer_y): 1 - row.value for row in rows}
    view = opened(written(rows), order="clustered")
    columns, downs = view.edges()
    assert (len(columns), len(downs)) == (5, 4)
    places = {(r, c): (columns[c] + 4, downs[r] + 4) for r in range(3) for c in range(4)}
    # The page interpolates 11 colours of the map.
    table = np.round(np.array([colormaps["viridis"](step / 255)[:3] for step in range(256)]) * 255)
    # Names of rows and columns, as screen readers have them; the highest row is the first.
    heads = (view.panel().locator(f"{part} th").all_inner_texts() for part in ("tbody", "thead"))
    down, across = (
        [0 if name.endswith("embeddings") else int(name[-1]) for name in names if name.strip()]
        for names in heads
    )
    seen = []
    for (row, column), colour in view.colours("Grid A", places).items():
        layers = down[::-1][row], across[column]
        step = np.abs(table - colour).sum(axis=1).argmin()
        assert abs(step / 255 - value[layers]) < 3 / 255
        seen.append(layers)
    assert sorted(seen) == sorted(value)
    assert seen != sorted(value)


def test_colours_are_those_of_the_measure_or_of_the_grid(opened, written):
    """The numbers beside the colours, and that the lowest and the highest value have their ends."""
    rows = [replace(r, value=0.2 + r.value / 10, n=1000) for r in grid("A-B", "A", "B")]
    values = [row.value for row in rows]
    view = opened(written(rows))
    title = ("linear", "CKA", "(biased)")
    ends = [f"{end(values):.2f}"[1:] for end in (min, max)]
    assert view.scale().split() == [*title, ".00", "1.00"]
    view.choose(view.field("Colour range"), "fitted to the grid")
    assert view.scale().split() == [*title, *ends]
    columns, downs = view.edges()
    places = {end: divmod(values.index(end(values)), 4) for end in (min, max)}
    points = {end: (columns[c] + 4, downs[r] + 4) for end, (r, c) in places.items()}
    ends = np.array(list(view.colours("Grid A", points).values()))
    wanted = np.array([colormaps["viridis"](share)[:3] for share in (0.0, 1.0)]) * 255
    assert np.abs(ends - wanted).max() < 2


def test_few_rows_have_a_warning_where_the_measure_is_high_for_them(opened, written):
    biased = grid("A-B", "A", "B")
    rows = biased + [replace(row, estimator="unbiased") for row in biased]
    view, words = opened(written(rows)), "n = 9 is few: where layers have more columns than that"
    assert words in view.scale()
    view.choose("Measure", "linear CKA (unbiased)")
    assert "few" not in view.scale()
    view.go(view="")
    assert words in view.page.locator("#view-overview").inner_text()


def test_an_infinite_value_leaves_the_colours_of_the_others(opened, written):
    rows = grid("A-B", "A", "B")
    values = [row.value for row in rows[1:]]
    rows[0] = replace(rows[0], value=np.inf)
    view = opened(written(rows), range="fitted")
    assert view.copied()[0]["value"] == "Infinity"
    columns, downs = view.edges()
    view.hover(columns[0] + 2, downs[0] + 2)
    assert view.readout().startswith("A, embeddings × B, embeddings: Infinity")
    assert "undefined" not in view.scale()
    bar, _, beyond = view.scale().partition(" cell beyond the range")
    assert beyond.startswith(" (Infinity)")
    assert [float(end) for end in bar.split()[-3:-1]] == pytest.approx(
        [min(values), max(values)], abs=0.006
    )


def test_hostile_names_are_shown_as_they_are(opened, written):
    """In the readout, the heading of a layer, links, and the filter."""
    view = opened(written(joint_grid(HOSTILE, layers=2), title="".join(HOSTILE)))
    assert view.page.get_by_role("heading", level=1).inner_text() == "".join(HOSTILE).strip()
    view.canvas().focus()
    for name in HOSTILE:
        view.press("ArrowUp", "Enter")
        assert view.readout().startswith(f"{name}, layer 1 × {HOSTILE[0]}, embeddings: ")
        title = f"{name}, layer 1"
        assert view.page.get_by_role("heading", name=title, exact=True).is_visible()
        if set(name) & set("&#=~'"):
            view.again()  # a link holds them
            assert view.page.get_by_role("heading", name=title, exact=True).is_visible()
            assert view.readout().startswith(f"{name}, layer 1 × ")
            view.canvas().focus()
        view.press("ArrowUp")
    view.find("model:</script>")
    view.again()
    assert [row["label_x"] for row in view.copied()] == [HOSTILE[0]] * 4


def tuned(seed, other=None, **extra):
    """Return the rows of a fine-tuned model against the base (`other` is None) or another seed."""
    y = "ORIG" if other is None else f"FT[{other}]"
    name = "FT-ORIG" if other is None else "FT-FT" if other == seed else f"FT[{seed}]-FT[{other}]"
    stage = ORIG if other is None else FT
    draw = 100 * seed + (other or 0)
    return grid(name, f"FT[{seed}]", y, draw, (seed, other), **TUNED, stage_y=stage, **extra)


def require_equal(view, rows):
    """Check the grid that is shown against pandas."""
    shown = pd.DataFrame(view.copied()).astype(dict.fromkeys(KEYS, int))
    shown = shown.set_index(KEYS).sort_index()
    groups = to_frame(rows).groupby(KEYS)["value"]
    wanted = groups.agg(["mean", "std", "min", "max", "count"]).sort_index()
    for name, column in zip(("mean", "sd", "lowest", "highest", "number"), wanted, strict=True):
        assert shown[name].replace("", "nan").astype(float).to_numpy() == pytest.approx(
            wanted[column].to_numpy(float), abs=5e-5, nan_ok=True
        ), name


@pytest.fixture
def groups():
    """Return rows of three groups: within, between seeds, and against the base."""
    seeds = (1, 2, 3)
    return {
        "FT[1–3] × ORIG, 3 seeds": [row for seed in seeds for row in tuned(seed)],
        "FT[1–3] × FT[1–3] (each with itself), 3 seeds": [
            row for seed in seeds for row in tuned(seed, seed)
        ],
        "FT[1–3] × FT[1–3] (between seeds), 3 pairs": [
            row for pair in ((1, 2), (1, 3), (2, 3)) for row in tuned(*pair)
        ],
    }


def test_seeds_are_one_grid_with_the_values_of_pandas(opened, written, groups):
    """Their deviation, and the intervals and p-values of one of them, can be shown."""
    rows = [
        replace(row, low=row.value - 0.1, high=row.value + 0.2, pvalue=row.layer_x / 10)
        for part in groups.values()
        for row in part
    ]
    view = opened(written(rows))
    assert view.grids()[:3] == list(groups)
    for name, part in groups.items():
        view.choose("Grid", name)
        require_equal(view, part)
    against = [row for row in rows if row.label_y == "ORIG"]
    deviation = np.std([row.value for row in against if row.layer_x == row.layer_y == 1], ddof=1)
    one = "FT-ORIG: FT[1] × ORIG"
    shown = (
        (next(iter(groups)), "sd", 2, deviation),
        *((one, plane, 1, value) for plane, value in (("width", 0.3), ("pvalue", 0.2))),
    )
    for name, plane, line, value in shown:
        view.choose("Grid", name)
        view.choose(view.field("Show"), plane)
        cells = view.panel().locator("tbody tr").nth(line).locator("td").all_inner_texts()
        assert float(cells[1]) == pytest.approx(value, abs=6e-4)
        assert ("standard deviation over seeds" in view.heading()) == (plane == "sd")
        assert f"show={plane}" in view.page.url


def test_groups_do_not_mix_layers_rows_or_undefined_values(opened, written):
    few = [row for row in tuned(3) if row.layer_x < 3 and row.layer_y < 3]
    rows = [
        replace(row, value=np.nan) if row.layer_x == 0 and row.seed_x == 1 else row
        for row in [*tuned(1), *tuned(2), *few, *tuned(4, n=1200)]
    ]
    view = opened(written(rows))
    assert [name for name in view.grids() if "seeds" in name] == ["FT[1–4] × ORIG, 2 seeds"]
    require_equal(view, [row for row in rows if row.seed_x < 3 and row.n == 9])
    view.canvas().focus()
    view.press("PageDown", "Home")
    assert "SD undefined" in view.readout()
    assert " in 1 seed;" in view.readout()


@pytest.mark.deep
def test_two_comparisons_of_the_same_models_are_no_seeds(opened, written):
    """Their names differ in a number, as those of seeds do."""
    runs = {number: grid(f"run {number}", "FT[1]", "ORIG", number, (1, None), **TUNED, stage_y=ORIG)
            for number in (1, 2)}  # fmt: skip
    view = opened(written([row for rows in runs.values() for row in rows]))
    assert len(view.grids()) == 2
    assert not any("seeds" in name for name in view.grids())


@pytest.mark.deep
def test_seeds_within_a_joint_grid_are_one_grid(opened, written):
    rows = [
        replace(row, seed_x=int(row.label_x[3]), seed_y=int(row.label_y[3]), base_x="b",
                base_y="b", stage_x=FT, stage_y=FT)
        for row in joint_grid(["FT[1]", "FT[2]", "FT[3]"])
    ]  # fmt: skip
    view = opened(written(rows))
    view.choose("Grid", "FT[1–3] × FT[1–3] (each with itself), 3 seeds")
    require_equal(view, [row for row in rows if row.label_x == row.label_y])
