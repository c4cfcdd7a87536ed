"""What readers do with a page: point, press keys, open layers, order, compare, save."""

import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from simlab import TaskOptions, extract, read_results
from simlab import grid as compare
from simlab.report.write import write_report
from simlab.results.results import LOCALIZATION, SKIPPING, TRUNCATION
from support.lab.pages import CURVES, JOINT, WHOLE, Parts, unpack_text
from support.lab.result_rows import ONE_BASE, curve, grid, joint_grid, triangle


def value_of(words):
    """Return the value that a readout says."""
    text = words.split(": ")[1].split(";")[0]
    return float("nan") if text == "undefined" else float(text)


def test_pointing_at_a_cell_says_what_is_known_of_it(opened, studies):
    frame = read_results(JOINT)
    row = frame[(frame["measure"] == "cka") & (frame["layer_x"] == 1) & (frame["layer_y"] == 3)]
    row = row[(row["label_x"] == "ORIG") & (row["label_y"] == "ORIG")].iloc[0]
    view = opened(studies, a=WHOLE)
    assert view.choice("Measure").input_value() == "linear CKA (biased)"
    columns, rows = view.edges()
    view.hover(columns[3] + 2, rows[1] + 2)
    place = "ORIG, layer 1 × ORIG, layer 3"
    value, low, high = (f"{row[name]:.3f}"[1:] for name in ("value", "low", "high"))
    assert view.readout() == f"{place}: {value}; 95 % interval {low} to {high}; n = 1,000"
    assert view.panel().locator(".readout").get_attribute("aria-live") == "polite"


def test_keys_move_the_cursor_zoom_and_open_and_a_zoomed_grid_is_dragged(opened, large):
    view = opened(large)
    view.canvas().focus()
    steps = {
        "ArrowUp": "M0, layer 1 × M0, embeddings",
        "ArrowRight": "M0, layer 1 × M0, layer 1",
        "Shift+ArrowUp": "M2, layer 1 × M0, layer 1",
        "ArrowDown": "M2, embeddings × M0, layer 1",
        "End": "M2, embeddings × M11, layer 4",
        "PageUp": "M11, layer 4 × M11, layer 4",
        "ArrowLeft": "M11, layer 4 × M11, layer 3",
        "PageDown": "M0, embeddings × M11, layer 3",
        "Home": "M0, embeddings × M0, embeddings",
    }
    for key, words in steps.items():
        view.press(key)
        assert view.readout().startswith(f"{words}: "), key
    whole = view.canvas().screenshot()
    view.press("+", "+")
    assert view.canvas().screenshot() != whole
    view.press("0")
    assert view.canvas().screenshot() == whole
    view.press("+", "+", "+")
    box = view.canvas().bounding_box()
    middle = box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.6

    def under():
        view.page.mouse.move(middle[0] + 1, middle[1])
        return view.readout().split(":")[0]

    before = under()
    view.page.mouse.down()
    view.page.mouse.move(middle[0] - 120, middle[1] - 90, steps=4)
    view.page.mouse.up()
    assert under() != before
    assert view.page.get_by_role("region", name="Layer").count() == 0  # a drag is no click
    view.press("Home", "PageDown", "ArrowUp", "Enter")
    assert view.page.get_by_role("heading", name="M0, layer 1", exact=True).is_visible()


def test_a_click_opens_the_layer_with_its_profile_and_what_else_is_known(opened, written):
    """The mean over seeds of a model; localization, truncation and skipping of the layer."""
    rows = [
        *(row for seed in (1, 2) for row in grid("FT-ORIG", f"FT[{seed}]", "ORIG", seed,
                                                  seeds=(seed, None), **ONE_BASE)),
        *(row for seed in (1, 2) for row in curve(f"FT[{seed}]", seed, mode=LOCALIZATION)),
        *(row for seed in (1, 2) for row in curve(f"FT[{seed}]", seed, mode=TRUNCATION)),
        *curve("ORIG", None, start=0.3, mode=LOCALIZATION, measure=LOCALIZATION),
        *triangle("ORIG", None),
    ]  # fmt: skip
    view = opened(written(rows))
    view.choose("Grid", "FT-ORIG: FT[2] × ORIG")
    view.canvas().focus()
    view.press("ArrowDown")
    columns, downs = view.edges()
    view.canvas().click(position={"x": columns[0] + 4, "y": downs[2] + 4})
    layer = view.layer("FT[2], layer 2")
    assert "truncation-untuned (rt, n = 9): .700" in layer.inner_text()
    view.page.get_by_role("button", name="Close").click()
    assert layer.count() == 0 or not layer.is_visible()
    # From the other side: ORIG against both seeds.
    view.go(layer="a~ORIG~1")
    layer = view.layer("ORIG, layer 1")
    words = layer.inner_text()
    assert "FT[1–2] (mean and range of 2 seeds)" in words
    assert "localization (rt, n = 9): .400" in words
    assert "accuracy, skipping (rt, n = 9): .800" in words
    assert SKIPPING in words
    values = {(r.seed_x, r.layer_x): r.value for r in rows if r.layer_y == 1 and r.measure == "cka"}
    for line in view.copied(layer):
        pair = [values[seed, int(line["layer"])] for seed in (1, 2)]
        assert float(line["mean"]) == pytest.approx(np.mean(pair), abs=1e-4)
        assert float(line["lowest"]) == pytest.approx(min(pair), abs=1e-4)
        assert float(line["highest"]) == pytest.approx(max(pair), abs=1e-4)


def shown_layers(view):
    """Return the rows of a small grid, from the lowest, as screen readers name them."""
    return view.panel().locator("tbody th").all_inner_texts()[::-1]


def test_orders_of_rows(opened, written):
    rows = joint_grid(["A", "B"], layers=3)
    view = opened(written(rows))
    names = [f"{m}, {layer}" for m in "AB" for layer in ("embeddings", "layer 1", "layer 2")]
    assert shown_layers(view) == names
    view.choose(view.field("Order"), "by layer")
    assert shown_layers(view) == [names[at] for at in (0, 3, 1, 4, 2, 5)]
    view.choose(view.field("Order"), "by clustering")
    assert sorted(shown_layers(view)) == sorted(names)
    assert "order=clustered" in view.page.url


def test_two_grids_move_together_and_their_difference_is_that_of_the_values(opened, small):
    one, other = grid("A-B", "A", "B"), grid("A-C", "A", "C", seed=1)
    view = opened(small)
    view.compare()
    assert [view.choice("Grid", panel).input_value() for panel in ("Grid A", "Grid B")] == [
        "A-B",
        "A-C",
    ]
    view.canvas().focus()
    view.press("ArrowUp", "ArrowRight", "ArrowRight")
    cells = [view.readout(panel) for panel in ("Grid A", "Grid B", "Difference")]
    place = 1 * 4 + 2
    wanted = [one[place].value, other[place].value, one[place].value - other[place].value]
    assert [value_of(cell) for cell in cells] == pytest.approx(wanted, abs=1e-3)
    assert cells[1].startswith("A, layer 1 × C, layer 2")
    drawn = view.saved("Save as SVG", "Difference")[1].decode()
    words = re.findall(r'<text[^>]*text-anchor="middle"[^>]*>(-?[01]?\.\d+)</text>', drawn)
    pairs = zip(one, other, strict=True)
    differences = np.array([a.value - b.value for a, b in pairs]).reshape(4, 4)[::-1].ravel()
    assert [float(text) for text in words] == pytest.approx(differences, abs=0.0051)
    assert all(re.fullmatch(r"-?1?\.\d\d", text) for text in words)
    view.canvas("Difference").focus()
    view.press("ArrowUp")
    assert view.readout("Grid B").startswith("A, layer 2 × C, layer 2")


@pytest.mark.deep
def test_grids_of_two_sizes_have_no_difference(opened, large):
    view = opened(large)
    view.compare()
    notice = view.page.locator("#notice").inner_text()
    assert notice == "The difference needs grids of one size: A is 60 × 60, B is 4 × 4."
    assert not view.panel("Difference").is_visible()


@pytest.mark.deep
def test_the_wheel_with_control_and_two_fingers_zoom(opened, large):
    """What is under the wheel stays there; without Ctrl the page scrolls."""
    view = opened(large)
    columns, rows = view.edges()
    at = columns[30] + 3, rows[30] + 3
    view.hover(*at)
    cell = view.readout().split(":")[0]
    whole = view.canvas().screenshot()
    view.page.mouse.wheel(0, -10)
    view.settle()
    assert view.canvas().screenshot() == whole
    view.page.keyboard.down("Control")
    view.page.mouse.wheel(0, -400)
    view.page.keyboard.up("Control")
    view.settle()
    view.hover(at[0] + 1, at[1])
    assert view.readout().split(":")[0] == cell
    assert len(view.edges()[0]) < len(columns) / 2
    view.panel().get_by_role("button", name="Whole grid").click()
    view.settle()
    view.canvas().evaluate("""(canvas) => {
      const box = canvas.getBoundingClientRect(), x = box.left + 200, y = box.top + 200;
      const send = (type, pointerId, away) => canvas.dispatchEvent(new PointerEvent(type,
        { pointerId, pointerType: "touch", buttons: 1, clientX: x + away, clientY: y }));
      send("pointerdown", 1, 0);
      send("pointerdown", 2, 50);
      send("pointermove", 2, 100);
      send("pointermove", 2, 150);
    }""")
    view.settle()
    assert len(columns) / 4 < len(view.edges()[0]) < len(columns) / 2


@pytest.mark.deep
def test_a_button_that_was_released_elsewhere_holds_nothing(opened, small):
    """The right button opens a menu, and the left one may be released outside the window."""
    view = opened(small)
    columns, rows = view.edges()
    view.hover(columns[0] + 2, rows[1] + 2)
    view.page.mouse.down(button="right")
    view.hover(columns[1] + 2, rows[2] + 2)
    assert view.readout().startswith("A, layer 2 × B, layer 1")
    view.canvas().evaluate("""(canvas) => canvas.dispatchEvent(new PointerEvent("pointerdown",
      { pointerId: 9, pointerType: "mouse", buttons: 1 }))""")
    box = view.canvas().bounding_box()
    view.canvas().evaluate(
        """(canvas, [x, y]) => canvas.dispatchEvent(new PointerEvent("pointermove",
          { pointerId: 9, pointerType: "mouse", buttons: 0, clientX: x, clientY: y }))""",
        [box["x"] + columns[2] + 2, box["y"] + rows[3] + 2],
    )
    assert view.readout().startswith("A, layer 3 × B, layer 2")


REFUSED = {
    "copies": "navigator.clipboard.writeText = () => Promise.reject(new Error('no'))",
    "room": "URL.createObjectURL = () => { throw new Error('no room'); }",
}


def test_what_a_button_could_not_do_is_said(opened, written):
    """What the browser does not copy, and what is too long to be copied, is saved as a file."""
    rows = [replace(row, value=0.99, low=0.96, high=1.02) for row in grid("A-B", "A", "B")]
    view = opened(written(rows))
    view.canvas().focus()
    view.press("ArrowRight")
    assert (
        "95 % interval .960 to 1.020 (symmetric: may leave the measure's range)" in view.readout()
    )
    view.page.evaluate(f"() => {{ {REFUSED['copies']}; }}")
    name, content = view.saved("Copy as CSV")
    table = list(csv.DictReader(io.StringIO(content.decode())))
    assert [np.float32(line["value"]) for line in table] == [np.float32(r.value) for r in rows]
    assert name.endswith(".csv")
    view.said("saved as a file")
    view.again()
    view.page.evaluate("() => { Array.prototype.join = () => 'x'.repeat(6e6); }")
    assert view.saved("Copy as CSV")[0].endswith(".csv")
    view.again()
    view.page.evaluate(f"() => {{ {REFUSED['room']}; }}")
    view.panel().get_by_role("button", name="Save as SVG").click()
    view.said("Save as SVG: Error: no room")


def test_curves_come_with_their_rows(opened, studies):
    view = opened(studies, view="curves")
    figures = view.page.locator("figure")
    names = figures.locator("h2").all_inner_texts()
    assert {"rt: truncation", "rt: skipping", "rt: freezing"} <= set(names)
    assert all(": " in name for name in names)  # the task first
    figure = figures.nth(names.index("rt: truncation"))
    view.page.get_by_role("button", name="rt: truncation").click()
    loaded = "(image) => image.decode().then(() => image.naturalWidth)"
    assert figure.locator("img").evaluate(loaded) > 100
    table = view.copied(figure)
    frame = read_results(CURVES)
    wanted = frame[frame["experiment"].str.startswith("truncation")]["value"]
    found = [float(r["value"]) for r in table if r["experiment"].startswith("truncation")]
    assert sorted(found) == pytest.approx(sorted(wanted))
    figure.locator("summary").click()
    figure.locator("tbody tr").first.wait_for()
    assert figure.locator("tbody tr").count() == min(len(table), 200)


@pytest.fixture
def run(tmp_path, tiny_bert, reviews):
    """The folder of a run with representations and a grid with intervals and p-values."""
    options = TaskOptions(text_column="body", label_column="verdict")
    folder = tmp_path / "run"
    extract(tiny_bert, str(reviews), folder / "reps", label="O", task_options=options)
    results = folder / "results" / "orig.parquet"
    compare(folder / "reps", results, estimator="biased", bootstrap=20, permutations=20)
    (folder / "status.json").write_text(
        '{"kinds": {"grid": {"done": 1, "failed": 1, "waiting": 3}}, "last_error": "grid X: <b>", '
        '"failed": [{"title": "grid X", "error": "no room"}]}'
    )
    return folder


def test_what_was_run_and_its_intervals_and_p_values(opened, run):
    """Models, jobs with their inputs, what failed and what is missing; a cell that is read out."""
    page = write_report(run / "results", run / "page.html")
    parts = Parts(page.read_text())
    (record,) = json.loads(unpack_text(parts.text("jobs")))
    assert (record["path"], record["done"], record["inputs"]["label"]) == ("run/reps", True, "O")
    assert parts.data["versions"]["simcore"]
    assert parts.data["jobs"] == 1
    view = opened(page, view="runs")
    words = view.page.locator("#view-runs").inner_text()
    assert "linear CKA (biased)\t1\t16\n" in words
    for part in ("State of run", "grid\t1\t1\t3", "The last failure: grid X: <b>", "no room"):
        assert part in words
    assert "run/reps" in words
    (job,) = view.page.get_by_role("region", name="Jobs").locator("tbody tr").all()
    shown = job.locator("td[title]").first
    assert re.search("[0-9a-f]{12}…$", shown.inner_text())  # hashes stand last
    assert "label: O" in shown.inner_text()
    assert "null" not in shown.inner_text()
    assert re.search("[0-9a-f]{64}", shown.get_attribute("title"))
    assert not re.search("[0-9a-f]{64}", words)
    assert "label: O" in words
    assert "torch" in words
    table = view.copied(view.page, "Copy as CSV: Grids")
    assert [(line["measure"], line["cells"]) for line in table] == [("linear CKA (biased)", "16")]
    view.go()
    view.canvas().focus()
    view.press("ArrowRight", "ArrowUp", "ArrowRight")
    frame = read_results(run / "results")
    row = frame[(frame["layer_x"] == 1) & (frame["layer_y"] == 2)].iloc[0]
    words = view.readout()
    assert words.startswith("O, layer 1 × O, layer 2: ")
    assert value_of(words) == pytest.approx(row["value"], abs=1e-3)
    low, _, high = words.split("95 % interval ")[1].split(";")[0].split(" ")[:3]
    assert [float(low), float(high)] == pytest.approx([row["low"], row["high"]], abs=1e-3)
    assert float(words.split("p = ")[1].split(";")[0]) == pytest.approx(row["pvalue"], abs=1e-3)
    assert "calibrated" in words
    assert words.endswith(f"n = {row['n']}")
