"""Two grids beside each other: which ones, the same layers in every order, and their names."""

import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import spearmanr

from simlab.report.write import write_report
from simlab.results.results import FT, to_frame, write_results
from support.lab.result_rows import grid, joint_grid, tuned


def labels_of(view, panel):
    """Return the words of the picture that a panel saves."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", view.saved("Save as SVG", panel)[1].decode())


def test_a_difference_is_of_the_same_layers_in_the_order_of_clusters(opened, small):
    """Two grids whose clusterings differ: the second one and the difference follow the first.

    Columns of A and of B are of other models, rows are of one model: pictures name both.
    """
    one, other = grid("A-B", "A", "B"), grid("A-C", "A", "C", seed=1)
    view = opened(small)
    view.compare()
    view.choose(view.field("Order"), "by clustering")
    a, b = ({(r.layer_x, r.layer_y): r.value for r in rows} for rows in (one, other))
    lines = view.copied("Difference")
    assert len(lines) == len(one)
    for line in lines:
        at = int(line["layer_x"]), int(line["layer_y"])
        assert (line["minus_layer_x"], line["minus_layer_y"]) == (line["layer_x"], line["layer_y"])
        assert (line["label_y"], line["minus_label_y"]) == ("B", "C")
        assert float(line["value"]) == pytest.approx(a[at] - b[at], abs=1e-4)
    view.canvas().focus()
    view.press("ArrowUp", "ArrowRight")
    first, second = (view.readout(name).split(": ")[0] for name in ("Grid A", "Grid B"))
    assert second == first.replace("B, ", "C, ")
    assert view.readout("Difference").startswith(f"{first} − {second}: ")
    assert {"A", "B − C"} <= set(labels_of(view, "Difference"))
    assert "B" in labels_of(view, "Grid A")


@pytest.mark.deep
def test_grids_that_differ_in_their_rows_alone_are_both_shown(opened, written):
    few = grid("A-B", "A", "B")
    many = [replace(row, n=1200, value=row.value / 2) for row in few]
    view = opened(written(few + many))
    assert view.grids() == ["A-B, n = 9", "A-B, n = 1,200"]
    for name, rows in (("A-B, n = 1,200", many), ("A-B, n = 9", few)):
        view.choose("Grid", name)
        found = [float(line["value"]) for line in view.copied()]
        assert found == pytest.approx([row.value for row in rows], abs=1e-4)
    view.compare()
    view.canvas().focus()
    view.press("ArrowUp")
    assert view.readout("Difference").endswith("; n = 9; n = 1,200")


@pytest.mark.deep
def test_the_second_grid_has_the_size_of_the_first(opened, written):
    """A grid of another measure rather than one of another size; of the same measure at best."""
    joint = [row for name in ("svcca", "pwcca") for row in joint_grid(["A", "B"], measure=name)]
    pairs = [*grid("A-A", "A", "A", measure="svcca"), *grid("A-B", "A", "B", measure="pwcca")]
    pairs = [replace(row, kind="word-last") for row in pairs]
    view = opened(written(joint + pairs))
    for first, second in (("all: all of 2 models", "PWCCA"), ("A-A", "PWCCA")):
        view.choose("Grid", first)
        view.compare()
        assert view.choice("Measure", "Grid B").input_value() == second
        assert view.panel("Difference").is_hidden()
        assert "different measures, which have no difference" in view.page.inner_text("#notice")
        assert "ρ =" in view.page.get_by_role("region", name="Scatter").inner_text()
        view.page.get_by_label("Compare with a second grid").uncheck()
        view.settle()


@pytest.mark.deep
def test_the_same_grid_by_another_measure_is_beside_it_first(opened, written):
    """Two clicks from the overview, whose scatter says how the measures agree."""
    rows = [tuned(seed, measure=measure) for measure in ("cka", "svcca") for seed in (1, 2)]
    view = opened(written([row for part in rows for row in part]), view="")
    view.page.locator(".thumb").first.click()
    view.settle()
    view.compare()
    names = [view.heading(name) for name in ("Grid A", "Grid B")]
    assert names == ["A: linear CKA (biased)", "B: SVCCA"]
    assert view.page.get_by_role("region", name="Scatter").locator("h2").is_visible()
    assert view.panel("Difference").get_by_role("combobox").count() == 0
    labels = view.page.locator("main label:visible")
    assert max(label.bounding_box()["height"] for label in labels.all()) < 40


def matrix(rows):
    return np.array([row.value for row in rows]).reshape(4, 4)


def test_a_difference_of_means_has_a_pooled_deviation(opened, written):
    """Both sides are named by what differs; colours are fixed about zero."""
    first = [tuned(seed) for seed in (1, 2, 3)]
    second = [tuned(seed, 10 + seed, "mnli") for seed in (1, 2, 3, 4)]
    view = opened(written([row for rows in first + second for row in rows]))
    view.choose("Task", "rt")
    view.choose("Grid", "FT[1–4] × BASE, 3 seeds")
    view.canvas().focus()
    view.press("ArrowUp", "ArrowRight", "ArrowRight")
    view.compare()
    assert view.choice("Task", "Grid B").input_value() == "mnli"
    titles = [view.heading(name) for name in ("Grid A", "Grid B")]
    assert titles[0].startswith("A: ")
    assert titles[0].endswith("rt")
    assert titles[1].endswith("mnli")
    a, b = (np.array([matrix(rows) for rows in side]) for side in (first, second))
    wanted = a.mean(0) - b.mean(0)
    pooled = np.sqrt((2 * a.var(0, ddof=1) + 3 * b.var(0, ddof=1)) / 5)
    value, deviation, error = differences(view, "value", "pooled", "error")
    assert value == pytest.approx(wanted, abs=1e-4)
    assert deviation == pytest.approx(pooled, abs=1e-4)
    assert error == pytest.approx(pooled * np.sqrt(1 / 3 + 1 / 4), abs=1e-4)
    caption = view.panel("Difference").locator(".caption").inner_text()
    assert "pooled over 3 and 4 seeds, which are no pairs" in caption
    assert view.scale("Difference").split()[3:5] == ["-.50", ".50"]
    assert "two standard errors" in view.scale("Difference")
    # The cursor that stood in A before stands in all three.
    words = view.readout("Difference")
    found = re.search(r"layer 1 × BASE, layer 2.*: (-?[\d.]+); pooled SD ([\d.]+)", words)
    assert float(found[1]) == pytest.approx(wanted[1, 2], abs=1e-3)
    assert float(found[2]) == pytest.approx(pooled[1, 2], abs=1e-3)


def differences(view, *names):
    lines = view.copied("Difference")
    return [np.array([float(line[name]) for line in lines]).reshape(4, 4) for name in names]


def test_a_difference_of_the_same_seeds_is_paired(opened, written):
    """A constant offset between two tasks is no noise, however much seeds differ."""
    seeds = (1, 2, 3, 4)
    first = [tuned(seed) for seed in seeds]
    second = [
        [replace(row, task="mnli",
                 value=row.value - 0.05 + 0.01 * (seed - 2.5) * (row.layer_x == 1)) for row in rows]
        for seed, rows in zip(seeds, first, strict=True)
    ]  # fmt: skip
    view = opened(written([row for rows in first + second for row in rows]))
    view.compare()
    each = np.array([matrix(rows) for rows in first]) - [matrix(rows) for rows in second]
    value, deviation, error = differences(view, "value", "paired", "error")
    assert value == pytest.approx(each.mean(0), abs=1e-4)
    assert deviation == pytest.approx(each.std(0, ddof=1), abs=1e-4)
    assert error == pytest.approx(each.std(0, ddof=1) / 2, abs=1e-4)
    assert "two standard errors" not in view.scale("Difference")
    assert "of 4 paired seeds" in view.panel("Difference").locator(".caption").inner_text()


def test_pairs_of_seeds_count_as_seeds(opened, written):
    """Six pairs of four seeds are four values: those of the jackknife over seeds."""
    seeds, both = (1, 2, 3, 4), {"base_x": "bert", "base_y": "bert", "stage_x": FT, "stage_y": FT}
    pairs = list(combinations(seeds, 2))
    sides = [
        [grid(f"FT[{s}]-FT[{t}]", f"FT[{s}]", f"FT[{t}]", 10 * s + t + at, (s, t), task, "cka",
              **both) for s, t in pairs]
        for at, task in ((0, "rt"), (100, "mnli"))
    ]  # fmt: skip
    view = opened(written([row for side in sides for rows in side for row in rows]))
    view.compare()
    each = np.array([matrix(a) - matrix(b) for a, b in zip(*sides, strict=True)])
    left = np.array([each[[s not in pair for pair in pairs]].mean(0) for s in seeds])
    wanted = np.sqrt(3 / 4 * ((left - left.mean(0)) ** 2).sum(0))
    value, error = differences(view, "value", "error")
    assert value == pytest.approx(each.mean(0), abs=1e-4)
    assert error == pytest.approx(wanted, abs=2e-4)
    assert "of 4 paired seeds" in view.panel("Difference").locator(".caption").inner_text()


OVERLAPS = """() => [...document.querySelectorAll(".panel.grids")].flatMap((panel) => {
  const parts = [...panel.children].filter((part) => part.getBoundingClientRect().height > 0);
  const boxes = parts.map((part) => part.getBoundingClientRect());
  return boxes.slice(1).flatMap(({ top }, i) =>
    top < boxes[i].bottom - 1 ? [`${parts[i].className} and ${parts[i + 1].className}`] : []);
})"""


@pytest.mark.deep
def test_parts_of_panels_beside_each_other_do_not_overlap(opened, written):
    first = [tuned(seed) for seed in (1, 2, 3)]
    second = [tuned(seed, 10 + seed, "mnli") for seed in (1, 2, 3)]
    view = opened(written([row for rows in first + second for row in rows]))
    view.canvas().focus()
    view.press("ArrowUp")
    view.compare()
    assert view.page.locator(".panel.grids .scale:visible").count() == 3
    assert view.page.evaluate(OVERLAPS) == []


@pytest.mark.deep
def test_rows_and_zoom_of_both_grids_are_the_same(opened, written):
    long = "a-model-whose-name-is-long"
    other = [replace(row, task="mnli") for row in joint_grid(["A", "C", "D"])]
    view = opened(written([*joint_grid([long, "C", "D"]), *other]))
    view.compare()
    names = ("Grid A", "Grid B", "Difference")

    def tops():
        return [view.canvas(name).bounding_box()["y"] for name in names]

    assert max(tops()) - min(tops()) < 1
    edges = [view.edges(name) for name in names]
    assert edges[0] == edges[1] == edges[2]
    assert view.page.get_by_role("button", name="Zoom in").count() == 1  # for all
    view.panel("Grid A").get_by_role("button", name="Zoom in").click()
    view.settle()
    assert view.page.locator(".grid.zoomed").count() == 3
    seen = []
    for name in names:
        view.hover(edges[0][0][0] + 90, 60, name)
        seen.append(view.readout().split(":")[0])
    assert len(set(seen)) == 1
    assert " × " in seen[0]


def scatter_of(opened, page):
    """Return the correlation of ranks of two measures, and over how many cells it is."""
    view = opened(page)
    view.compare()
    words = view.page.get_by_role("region", name="Scatter").locator("h2").inner_text()
    rho, cells = re.search(r"= (-?[.0-9]+) over (\d+) cells", words).groups()
    return float(rho), int(cells)


def test_a_scatter_says_how_two_measures_agree(opened, written):
    """By scipy, with equal values among them; of a model with itself, one half is counted.

    There, the cells of the diagonal are equal by definition.
    """
    one, other = (
        [replace(row, value=round(row.value, 1)) for row in tuned(1, draw, measure=measure)]
        for draw, measure in ((1, "cka"), (5, "svcca"))
    )
    rho = spearmanr(matrix(one).ravel(), matrix(other).ravel()).statistic
    assert scatter_of(opened, written(one + other)) == (pytest.approx(rho, abs=1e-3), 16)
    rows = []
    for measure, draw in (("cka", 1), ("svcca", 2)):
        part = grid("A-A", "A", "A", draw, measure=measure)
        values = matrix(part)
        values = (values + values.T) / 2
        np.fill_diagonal(values, 1.0)
        rows.append([replace(r, value=values[r.layer_x, r.layer_y]) for r in part])
    lower = np.tril_indices(4, -1)
    rho = spearmanr(*(matrix(part)[lower] for part in rows)).statistic
    assert scatter_of(opened, written(rows[0] + rows[1])) == (pytest.approx(rho, abs=1e-3), 6)


def test_colours_say_which_values_they_do_not_tell_apart(opened, written):
    """A difference of -.84 has the colour of -.50, which the scale says, in a file as well."""
    low, high = grid("A-B", "A", "B"), grid("A-C", "A", "C")
    low = [replace(row, value=0.1 if row.layer_x < 2 else 0.5) for row in low]
    values = (0.94, 0.7, 0.5, 0.6)  # of each layer: differences -.84, -.60, 0 and -.10
    high = [replace(row, value=values[row.layer_x]) for row in high]
    view = opened(written(low + high))
    view.compare()
    wanted = "8 cells beyond the range (-.84 to -.60) have the colour of its end"
    assert wanted in view.scale("Difference")
    assert wanted in labels_of(view, "Difference")
    assert "beyond" not in view.scale()
    view.choose(view.field("Colour range"), "fitted to the grid")
    assert "beyond" not in view.scale("Difference")


def spread(rows, around):
    """Return the rows about one value, so that seeds differ by a known amount."""
    return [replace(row, value=0.5 + around) for row in rows]


@pytest.mark.deep
def test_deviations_have_one_range_on_all_tasks(opened, written):
    """Tasks whose seeds differ by .01 and by .2: with "fixed", colours tell them apart."""
    rows = [
        row
        for task, around in (("rt", 0.005), ("stsb", 0.1))
        for seed, side in ((1, -1), (2, 1))
        for row in spread(tuned(seed, task=task), side * around)
    ]
    view = opened(written([replace(row, n=1000) for row in rows]), show="sd")
    ends = {}
    for task in ("rt", "stsb"):
        view.choose("Task", task)
        ends[task] = view.scale().split()[-2:]
    assert ends["rt"] == ends["stsb"]
    assert ".14" in ends["stsb"]
    view.choose("Task", "rt")
    assert ".007" in labels_of(view, "Grid A")
    view.choose(view.field("Colour range"), "fitted to the grid")
    assert ".14" not in view.scale()


@pytest.mark.deep
def test_keys_go_on_in_the_grid_that_a_small_picture_opened(opened, written):
    """Beside it, thin lines have names, and a mark goes with the mouse."""
    view = opened(written([row for seed in (1, 2) for row in tuned(seed)]), view="")
    chart = view.page.locator(".curve").first
    titles = chart.locator("svg path.seed title").all_text_contents()
    assert titles == ["FT[1] × BASE", "FT[2] × BASE"]
    chart.locator("svg").first.hover()
    assert chart.locator(".pointed").inner_text().startswith("layer")
    view.page.mouse.move(5, 5)
    assert chart.locator(".pointed").inner_text() == ""
    assert chart.locator(".mark").count() == 0
    view.page.locator(".thumb").first.focus()
    view.press("Enter")
    view.press("ArrowUp", "ArrowRight")
    assert view.readout().startswith("FT[1–2], layer 1 × BASE, layer 1")


@pytest.mark.deep
def test_a_page_of_several_results_says_which_and_what_a_measure_is_of(opened, tmp_path):
    """Two files, each with a measure, a task and a model of its own."""
    one = tuned(1)
    names = {"label_x": "mini-FT[1]", "label_y": "mini", "base_x": "mini", "base_y": "mini"}
    other = [replace(row, **names) for row in tuned(1, 2, "qnli", "svcca")]
    for name, rows in (("first", one), ("second", other)):
        write_results(to_frame(rows), tmp_path / f"{name}.parquet")
    files = [tmp_path / "first.parquet", tmp_path / "second.parquet"]
    view = opened(write_report(files, tmp_path / "page.html"), view="")
    assert view.page.locator("h1").inner_text() == "first and second"
    assert "2 results: first, second" in view.page.locator("#summary").inner_text()
    choice = view.page.get_by_role("combobox", name="Measure of all pictures")
    options = choice.locator("option").all_inner_texts()
    assert options == ["linear CKA (biased), cls: first", "SVCCA, cls: second"]
    view.choose(choice, "SVCCA, cls: second")
    words = view.page.locator("#view-overview").inner_text()
    assert "This measure: results second; tasks qnli; models mini." in words
    alone = opened(write_report(files[:1], tmp_path / "alone.html"), view="")
    assert "This measure" not in alone.page.locator("#view-overview").inner_text()
    assert "results:" not in alone.page.locator("#summary").inner_text()
