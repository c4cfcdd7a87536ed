"""The panel of a layer: from which grid and task its numbers are, seeds, gaps, and the focus.

And the direction of a grid, and why cells are grey.
"""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from simlab.figures.style import undefined_note
from simlab.results.results import GRID, LOCALIZATION, TRUNCATION
from support.lab.result_rows import ONE_BASE, curve, grid, joint_grid, tuned

NAN = float("nan")


def test_the_profile_is_that_of_the_grid_that_was_clicked(opened, written):
    few = grid("A-B", "A", "B")
    view = opened(written(few + [replace(row, n=10, value=row.value / 2) for row in few]))
    for share, name in ((1, "A-B, n = 9"), (0.5, "A-B, n = 10")):
        view.choose("Grid", name)
        view.canvas().focus()
        view.press("ArrowUp", "Enter")
        row = int(view.readout().split("layer ")[1].split(" ")[0])
        found = [float(line["mean"]) for line in view.copied(view.layer(f"A, layer {row}"))]
        wanted = [cell.value * share for cell in few if cell.layer_x == row]
        assert found == pytest.approx(wanted, abs=1e-4)


def test_seeds_are_counted_where_they_have_a_value(opened, written):
    """The seeds of the opened model beside it, and an undefined layer of one of them."""
    rows = []
    for seed in (1, 2, 3):
        part = grid("FT-FT", "FT[1]", f"FT[{seed}]", seed, seeds=(1, seed), **ONE_BASE)
        rows += [replace(r, value=NAN) if (seed, r.layer_y) == (3, 2) else r for r in part]
    view = opened(written(rows), layer="a~FT[1]~1")
    layer = view.layer("FT[1], layer 1")
    assert "FT[1–3] (mean and range of the other 2 seeds)" in layer.inner_text()
    seeds = {
        line["layer"]: line["seeds"] for line in view.copied(layer) if "other" in line["models"]
    }
    assert seeds == {"0": "2", "1": "2", "2": "1", "3": "2"}


@pytest.mark.deep
def test_an_undefined_layer_is_a_gap_and_a_single_one_a_point(opened, written):
    rows = [replace(r, value=NAN) if r.layer_y == 1 else r for r in grid("A-B", "A", "B")]
    drawing = opened(written(rows), layer="a~A~1").layer("A, layer 1").locator("svg[role=img]")
    assert drawing.locator("path").count() == 2
    assert drawing.locator("circle").count() == 1  # layer 0; layers 2 and 3 are joined
    drawing = opened(written(rows[:1]), layer="a~A~0").layer("A, embeddings")
    assert drawing.locator("svg[role=img] circle").count() == 1


def test_a_layer_is_not_that_of_a_model_of_another_task(opened, written):
    rows = [*grid("A-B", "A", "B"), *grid("A-B", "A", "B", task="stsb")]
    rows += curve("A", start=0.1, mode=LOCALIZATION, measure=LOCALIZATION)
    rows += curve("A", start=0.5, mode=LOCALIZATION, measure=LOCALIZATION, task="stsb")
    view = opened(written(rows), layer="a~A~2")
    for task, value in (("rt", ".300"), ("stsb", ".700")):
        view.choose("Task", task)
        facts = view.layer("A, layer 2").get_by_role("listitem").all_inner_texts()
        assert [fact for fact in facts if "n = " in fact] == [
            f"localization ({task}, n = 9): {value}"
        ]


@pytest.mark.deep
def test_values_of_two_kinds_are_told_apart(opened, written):
    rows = grid("A-B", "A", "B")
    for kind, estimator, start in (("cls", "biased", 0.1), ("word-last", "unbiased", 0.5)):
        extra = {"kind": kind, "estimator": estimator, "measure": LOCALIZATION}
        rows += curve("A", start=start, mode=LOCALIZATION, **extra)
    facts = opened(written(rows), layer="a~A~2").layer("A, layer 2").get_by_role("listitem")
    assert [fact for fact in facts.all_inner_texts() if "n = " in fact] == [
        "localization (rt, cls, biased, n = 9): .300",
        "localization (rt, word-last, unbiased, n = 9): .700",
    ]


@pytest.mark.deep
def test_options_that_values_of_a_layer_share_are_folded(opened, written):
    """What tells them apart stands with them; a list is one option."""
    rows = grid("A-B", "A", "B")
    for rate, start in ((0.001, 0.1), (0.01, 0.5)):
        options = {"learning_rate": rate, "batch_size": 64, "layers": [1, 2, 3]}
        rows += curve("A", start=start, options=json.dumps(options))
    layer = opened(written(rows), layer="a~A~2").layer("A, layer 2")
    items = layer.get_by_role("listitem")
    assert [fact for fact in items.all_inner_texts() if "n = " in fact] == [
        "accuracy, truncation-untuned (rt, learning_rate 0.001, n = 9): .300",
        "accuracy, truncation-untuned (rt, learning_rate 0.01, n = 9): .700",
    ]
    assert "batch_size" not in layer.inner_text()
    layer.get_by_text("Options of accuracy, truncation-untuned").click()
    layer.get_by_text("batch_size 64").wait_for()
    assert "layers [1, 2, 3]" in items.all_inner_texts()


def test_the_focus_comes_back_from_a_layer_that_is_closed(opened, small):
    """By its button; by Escape, from anywhere."""
    view = opened(small)
    layer = view.layer("A, layer 1")
    for way in ("Close", "Escape", "Escape elsewhere"):
        view.canvas().focus()
        view.press("Home", "PageDown", "ArrowUp", "Enter")
        done = view.page.locator("#done").inner_text()
        assert done == "A, layer 1 is open beside or below its grid."
        inside = layer.get_by_role("button", name="Close")
        (view.field("Order") if way == "Escape elsewhere" else inside).focus()
        view.press("Enter" if way == "Close" else "Escape")
        assert not layer.is_visible()
        if way != "Escape elsewhere":
            assert view.page.evaluate("document.activeElement.tagName") == "CANVAS"
            view.press("ArrowUp")
            assert view.readout().startswith("A, layer 2 × B, embeddings")
    assert "the focus" in view.page.locator("#view-grids .hint").last.inner_text()


def test_a_click_on_a_mean_opens_its_layer(opened, written):
    """The layer of all seeds: the mean of their profiles and of their scores."""
    rows = [row for seed in (1, 2) for row in tuned(seed)]
    rows += [
        replace(row, value=row.value + shift)
        for seed, shift in ((1, 0.0), (2, 0.1))
        for row in curve(f"FT[{seed}]", seed, base=rows[0].base_x)
    ]
    view = opened(written(rows))
    title = view.heading()
    view.canvas().focus()
    view.press("ArrowUp", "Enter")
    layer = view.page.get_by_role("region", name="Layer FT[1–2], layer 1", exact=True)
    assert "with every layer, mean of 2 seeds" in layer.inner_text()
    scores = [row.value for row in rows if row.experiment == TRUNCATION and row.layer_x == 1]
    mean, sd = (f"{of(scores):.3f}".lstrip("0") for of in (np.mean, lambda v: np.std(v, ddof=1)))
    assert f"): {mean}, SD {sd} over 2 seeds" in layer.inner_text()
    layer.get_by_text("Values", exact=True).click()
    cells = [row for row in rows if row.experiment == GRID and row.layer_x == 1]
    wanted = {
        number: np.mean([row.value for row in cells if row.layer_y == number])
        for number in {row.layer_y for row in cells}
    }
    layer.locator("tbody tr").first.wait_for()
    shown = [row.locator("td").all_inner_texts() for row in layer.locator("tbody tr").all()]
    assert [(name, int(own), float(value)) for name, own, value, *_ in shown] == [
        ("BASE", number, pytest.approx(value, abs=6e-4)) for number, value in wanted.items()
    ]
    assert view.heading() == title  # the mean stays
    view.again()
    assert layer.is_visible()


def test_layer_0_is_at_the_bottom_left(opened, written):
    """On the screen, in a saved picture, for the keys, and in the order that clustering gives."""
    view = opened(written(joint_grid(["A", "B"], layers=3)))
    columns, rows = view.edges()
    assert rows[0] > rows[1] > rows[5]
    view.hover(columns[0] + 2, rows[0] + 2)
    assert view.readout().startswith("A, embeddings × A, embeddings: ")
    view.canvas().focus()
    view.press("Home", "PageDown", "ArrowUp")
    assert view.readout().startswith("A, layer 1 × A, embeddings: ")
    drawn = view.saved("Save as SVG")[1].decode()
    place = r'x="(\d+)" y="(\d+)"[^>]*><title>'
    first, up = (
        [int(number) for number in re.search(place + words, drawn).groups()]
        for words in ("A, embeddings × A, embeddings", "A, layer 1 × A, embeddings")
    )
    assert (first[0], first[1] - 28) == (up[0], up[1])


@pytest.mark.deep
def test_what_is_said_covers_no_cell_and_goes_with_the_view(opened, small):
    view = opened(small, width=380)
    view.canvas().focus()
    view.press("ArrowUp", "Enter")
    said, canvas = view.page.locator(".said").bounding_box(), view.canvas().bounding_box()
    assert said["y"] >= canvas["y"] + canvas["height"]
    view.page.get_by_role("link", name="Curves").click()
    view.settle()
    assert view.page.locator(".said").count() == 0
    assert view.page.locator("#done").inner_text() == ""


def test_grey_says_why(opened, written):
    """As the figures do; the difference says where."""
    rows = [replace(r, value=float("nan")) if r.layer_x == 0 else r for r in grid("A-B", "A", "B")]
    view = opened(written([*rows, *grid("A-C", "A", "C")]))
    words = view.scale()
    assert undefined_note("cls").removeprefix("Grey: ") in words
    view.compare()
    assert "undefined in A or in B" in view.scale("Difference")
    assert "undefined" not in view.scale("Grid B")
