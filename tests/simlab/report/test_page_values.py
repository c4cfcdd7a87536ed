"""The numbers that a browser shows are those of the results, in every cell of every grid."""

import csv
import io
import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib import colormaps

from simlab.figures.table import without_copies
from simlab.results.reading import read_table
from support.lab.pages import CURVES, HOSTILE, JOINT, cells_of
from support.lab.result_rows import grid, joint_grid

COPY = "navigator.clipboard.readText()"


def copied(view, panel="Grid A"):
    """Return the rows of the grid that a panel shows, through its button."""
    region = view.panel(panel)
    region.get_by_role("button", name="Copy as CSV").first.click()
    view.said("Copied.")
    return list(csv.DictReader(io.StringIO(view.page.evaluate(COPY))))


def choices(view, label):
    return view.choice(label).locator("option").all_inner_texts()


def every_cell(view):
    """Walk through all grids by the drop-downs of panel A, and return their cells."""
    found = {}

    def walk(labels, names):
        if labels:
            for choice in choices(view, labels[0]):
                if re.search(r", \d+ (seed|pair)s", choice):  # their means: test_page_seeds
                    continue
                view.choice(labels[0]).select_option(choice)
                view.settle()
                walk(labels[1:], (*names, choice))
            return
        for row in copied(view):
            numbers = [float(row.get(name) or "nan") for name in ("value", "low", "high", "pvalue")]
            layers = (row["label_x"], int(row["layer_x"]), row["label_y"], int(row["layer_y"]))
            found[(*names[:3], names[3].split(":")[0], *layers)] = numbers

    walk(["Task", "Representation", "Measure", "Grid"], ())
    return found


def test_every_cell_equals_the_results(opened, studies):
    wanted = cells_of(without_copies(read_table([JOINT, CURVES])))
    found = every_cell(opened(studies))
    assert found.keys() == wanted.keys()
    shown, given = (np.array([table[key] for key in wanted]) for table in (found, wanted))
    assert np.isfinite(given[:, 1]).any()
    np.testing.assert_allclose(shown, given.astype(np.float32), rtol=1e-7, atol=0)


@pytest.mark.parametrize(
    ("measure", "order"), [("cka", "model"), ("cka", "clustered"), ("angular", "model")]
)
def test_every_cell_has_the_colour_of_its_value(opened, written, measure, order):
    """Through the colour map and back: a colour is off by less than one of its 256 steps.

    The last colour is that of equal layers, also of distances.
    """
    rows = [row for row in grid("A-B", "A", "B", measure=measure) if row.layer_x < 3]
    value = {
        (row.layer_x, row.layer_y): 1 - row.value if measure == "angular" else row.value
        for row in rows
    }
    view = opened(written(rows), order=order)
    columns, downs = view.edges()
    assert (len(columns), len(downs)) == (5, 4)
    places = {(r, c): (columns[c] + 4, downs[r] + 4) for r in range(3) for c in range(4)}
    # The page interpolates 11 colours of the map.
    table = np.round(np.array([colormaps["viridis"](step / 255)[:3] for step in range(256)]) * 255)
    seen = []
    for (row, column), colour in view.colours("Grid A", places).items():
        at = (columns[column] + columns[column + 1]) / 2, downs[row] + 4
        view.hover(*at)
        layers = tuple(
            0 if part.endswith("embeddings") else int(part.rsplit(" ", 1)[1])
            for part in view.readout().split(":")[0].split(" × ")
        )
        step = np.abs(table - colour).sum(axis=1).argmin()
        assert abs(step / 255 - value[layers]) < 3 / 255
        seen.append(layers)
    assert sorted(seen) == sorted(value)
    assert (seen == sorted(value)) is (order != "clustered")


def test_colours_are_those_of_the_measure_or_of_the_grid(opened, written):
    """The numbers beside the colours, and that the lowest and the highest value have their ends."""
    rows = [replace(r, value=0.2 + r.value / 10, n=1000) for r in grid("A-B", "A", "B")]
    values = [row.value for row in rows]
    view = opened(written(rows))
    scale, title = view.panel().locator(".scale"), ("linear", "CKA", "(biased)")
    ends = [f"{end(values):.2f}"[1:] for end in (min, max)]
    assert scale.inner_text().split() == [*title, ".00", "1.00"]
    view.page.get_by_role("combobox", name="Colour range").select_option("fitted to the grid")
    view.settle()
    assert scale.inner_text().split() == [*title, *ends]
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
    assert words in view.panel().locator(".scale").inner_text()
    view.choice("Measure").select_option("linear CKA (unbiased)")
    view.settle()
    assert "few" not in view.panel().locator(".scale").inner_text()
    view.go(view="")
    assert words in view.page.locator("#view-overview").inner_text()


def test_an_infinite_value_leaves_the_colours_of_the_others(opened, written):
    rows = grid("A-B", "A", "B")
    values = [row.value for row in rows[1:]]
    rows[0] = replace(rows[0], value=np.inf)
    view = opened(written(rows), range="fitted")
    assert copied(view)[0]["value"] == "Infinity"
    columns, downs = view.edges()
    view.hover(columns[0] + 2, downs[0] + 2)
    assert view.readout().startswith("A, embeddings × B, embeddings: Infinity")
    scale = view.panel().locator(".scale").inner_text()
    assert "undefined" not in scale
    bar, _, beyond = scale.partition(" cell beyond the range")
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
        view.again()
        assert view.page.get_by_role("heading", name=title, exact=True).is_visible()
        assert view.readout().startswith(f"{name}, layer 1 × ")
        view.canvas().focus()
        view.press("ArrowUp")
    view.page.get_by_role("searchbox", name="Filter of all views").fill("model:</script>")
    view.settle()
    view.again()
    assert [row["label_x"] for row in copied(view)] == [HOSTILE[0]] * 4
