"""The panel of a layer: from which grid and task its numbers are, seeds, gaps, and the focus."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from simlab.results.results import FT, GRID, LOCALIZATION, ORIG, TRUNCATION
from support.lab.result_rows import ONE_BASE, curve, grid

NAN = float("nan")


def region(view, name):
    return view.page.get_by_role("region", name=f"Layer {name}", exact=True)


def rows_of(view, layer):
    """Return the rows behind the curves of a layer, through its button."""
    layer.get_by_role("button", name="Copy as CSV").click()
    view.said("Copied.")
    text = view.page.evaluate("navigator.clipboard.readText()")
    return list(csv.DictReader(io.StringIO(text)))


def test_the_profile_is_that_of_the_grid_that_was_clicked(opened, written):
    few = grid("A-B", "A", "B")
    view = opened(written(few + [replace(row, n=10, value=row.value / 2) for row in few]))
    for share, name in ((1, "A-B, n = 9"), (0.5, "A-B, n = 10")):
        view.choice("Grid").select_option(name)
        view.settle()
        view.canvas().focus()
        view.press("ArrowUp", "Enter")
        row = int(view.readout().split("layer ")[1].split(" ")[0])
        found = [float(line["mean"]) for line in rows_of(view, region(view, f"A, layer {row}"))]
        wanted = [cell.value * share for cell in few if cell.layer_x == row]
        assert found == pytest.approx(wanted, abs=1e-4)


def test_seeds_are_counted_where_they_have_a_value(opened, written):
    """The seeds of the opened model beside it, and an undefined layer of one of them."""
    rows = []
    for seed in (1, 2, 3):
        part = grid("FT-FT", "FT[1]", f"FT[{seed}]", seed, seeds=(1, seed), **ONE_BASE)
        rows += [replace(r, value=NAN) if (seed, r.layer_y) == (3, 2) else r for r in part]
    layer = region(view := opened(written(rows), layer="a~FT[1]~1"), "FT[1], layer 1")
    assert "FT[1–3] (mean and range of the other 2 seeds)" in layer.inner_text()
    seeds = {
        line["layer"]: line["seeds"] for line in rows_of(view, layer) if "other" in line["models"]
    }
    assert seeds == {"0": "2", "1": "2", "2": "1", "3": "2"}


def test_an_undefined_layer_is_a_gap_and_a_single_one_a_point(opened, written):
    rows = [replace(r, value=NAN) if r.layer_y == 1 else r for r in grid("A-B", "A", "B")]
    drawing = region(opened(written(rows), layer="a~A~1"), "A, layer 1").locator("svg[role=img]")
    assert drawing.locator("path").count() == 2
    assert drawing.locator("circle").count() == 1  # layer 0; layers 2 and 3 are joined
    drawing = region(opened(written(rows[:1]), layer="a~A~0"), "A, embeddings")
    assert drawing.locator("svg[role=img] circle").count() == 1


def test_a_layer_is_not_that_of_a_model_of_another_task(opened, written):
    rows = [*grid("A-B", "A", "B"), *grid("A-B", "A", "B", task="stsb")]
    rows += curve("A", start=0.1, mode=LOCALIZATION, measure=LOCALIZATION)
    rows += curve("A", start=0.5, mode=LOCALIZATION, measure=LOCALIZATION, task="stsb")
    view = opened(written(rows), layer="a~A~2")
    for task, value in (("rt", ".300"), ("stsb", ".700")):
        view.choice("Task").select_option(task)
        view.settle()
        facts = region(view, "A, layer 2").get_by_role("listitem").all_inner_texts()
        assert [fact for fact in facts if "n = " in fact] == [
            f"localization ({task}, n = 9): {value}"
        ]


def test_values_of_two_kinds_are_told_apart(opened, written):
    rows = grid("A-B", "A", "B")
    for kind, estimator, start in (("cls", "biased", 0.1), ("word-last", "unbiased", 0.5)):
        extra = {"kind": kind, "estimator": estimator, "measure": LOCALIZATION}
        rows += curve("A", start=start, mode=LOCALIZATION, **extra)
    facts = region(opened(written(rows), layer="a~A~2"), "A, layer 2").get_by_role("listitem")
    assert [fact for fact in facts.all_inner_texts() if "n = " in fact] == [
        "localization (rt, cls, biased, n = 9): .300",
        "localization (rt, word-last, unbiased, n = 9): .700",
    ]


def test_options_that_values_of_a_layer_share_are_folded(opened, written):
    """What tells them apart stands with them; a list is one option."""
    rows = grid("A-B", "A", "B")
    for rate, start in ((0.001, 0.1), (0.01, 0.5)):
        options = {"learning_rate": rate, "batch_size": 64, "layers": [1, 2, 3]}
        rows += curve("A", start=start, options=json.dumps(options))
    layer = region(opened(written(rows), layer="a~A~2"), "A, layer 2")
    items = layer.get_by_role("listitem")
    assert [fact for fact in items.all_inner_texts() if "n = " in fact] == [
        "accuracy, truncation-untuned (rt, learning_rate 0.001, n = 9): .300",
        "accuracy, truncation-untuned (rt, learning_rate 0.01, n = 9): .700",
    ]
    assert "batch_size" not in layer.inner_text()
    layer.get_by_text("Options of accuracy, truncation-untuned").click()
    layer.get_by_text("batch_size 64").wait_for()
    assert "layers [1, 2, 3]" in items.all_inner_texts()


@pytest.mark.parametrize("way", ["Close", "Escape"])
def test_the_focus_comes_back_from_a_layer(opened, written, way):
    view = opened(written(grid("A-B", "A", "B")))
    view.canvas().focus()
    view.press("ArrowUp", "Enter")
    assert view.page.locator("#done").inner_text() == "A, layer 1 is open beside or below its grid."
    layer = region(view, "A, layer 1")
    layer.get_by_role("button", name="Close").focus()
    view.press("Enter" if way == "Close" else "Escape")
    assert not layer.is_visible()
    assert view.page.evaluate("document.activeElement.tagName") == "CANVAS"
    view.press("ArrowUp")
    assert view.readout().startswith("A, layer 2 × B, embeddings")


def test_a_click_on_a_mean_opens_its_layer(opened, written):
    """The layer of all seeds: the mean of their profiles and of their scores."""
    names = {"base_x": "bert", "base_y": "bert", "stage_x": FT, "stage_y": ORIG}
    rows = [
        row
        for seed in (1, 2)
        for row in grid("FT-BASE", f"FT[{seed}]", "BASE", seed, (seed, None), **names)
    ]
    rows += [
        replace(row, value=row.value + shift)
        for seed, shift in ((1, 0.0), (2, 0.1))
        for row in curve(f"FT[{seed}]", seed, base=rows[0].base_x)
    ]
    view = opened(written(rows))
    title = view.panel().locator("h2").first.inner_text()
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
    assert view.panel().locator("h2").first.inner_text() == title  # the mean stays
    view.again()
    assert layer.is_visible()
