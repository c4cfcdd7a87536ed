"""The page answers how the similarity of a layer to its final state grows."""

import csv
import io
import re
from itertools import pairwise

import numpy as np
import pytest

from support.lab.result_rows import STEPS, grid, steps_of_training


@pytest.fixture
def page(written):
    return written(steps_of_training())


def test_every_layer_is_a_curve_over_steps(opened, page):
    rows = steps_of_training()
    view = opened(page, view="")
    chart = view.page.locator(".curve", has=view.page.get_by_role("img", name="last step"))
    assert chart.locator(".legend li").all_inner_texts() == [
        "embeddings",
        "layer 1",
        "layer 2",
        "layer 3",
    ]
    ticks = chart.locator("svg text[text-anchor=middle]").all_text_contents()
    assert [tick for tick in ticks if re.match(r"[\d,]+$", tick)] == [
        "0",
        "1",
        "10",
        "100",
        "1,000",
    ]
    chart.get_by_role("button", name="Copy as CSV").click()
    view.said("Copied.")
    text = view.page.evaluate("navigator.clipboard.readText()")
    found = {
        (int(r["layer"]), int(r["step"])): float(r["mean"])
        for r in csv.DictReader(io.StringIO(text))
    }
    assert len(found) == 4 * 5
    for (layer, step), mean in found.items():
        values = [
            row.value for row in rows
            if row.layer_x == row.layer_y == layer and row.step_x == step
        ]  # fmt: skip
        assert mean == pytest.approx(np.mean(values), abs=1e-5)


def test_a_sentence_says_which_layer_settles_first_and_last(opened, page):
    facts = opened(page, view="").page.locator(".fact").all_inner_texts()
    assert any("layer 3 last, from step 1,000 on" in fact for fact in facts)


def test_a_slider_leads_through_the_steps_of_a_grid(opened, page):
    view = opened(page, view="")
    thumbs = view.page.locator(".multiples .thumb span").all_inner_texts()
    steps = ["0", "1", "10", "100", "1,000"]
    assert thumbs == [f"step {step}, mean of 3 seeds" for step in steps]
    view.page.locator(".thumb").nth(1).click()
    view.settle()
    slider = view.page.get_by_role("slider", name="Step 1")
    slider.focus()
    view.canvas().focus()
    view.press("PageUp", "End")
    values = []
    for _ in range(4):
        values.append(float(view.readout().split(": ")[1].split(" ")[1].rstrip(";")))
        slider = view.page.get_by_role("slider")
        slider.focus()
        view.press("ArrowRight")
        assert slider.evaluate("(box) => box === document.activeElement")
    wanted = [
        np.mean([row.value for row in steps_of_training()
                 if row.layer_x == row.layer_y == 3 and row.step_x == step])
        for step in STEPS[1:5]
    ]  # fmt: skip
    assert values == pytest.approx(wanted, abs=6e-4)
    view.again()
    assert view.page.get_by_role("slider", name="Step 1,000").input_value() == "4"


def test_a_grid_without_steps_has_no_slider(opened, written):
    view = opened(written(grid("A-B", "A", "B")))
    assert view.page.get_by_role("slider").count() == 0


def test_seeds_are_compared_at_the_last_step_alone(opened, written):
    """A line for each run, however many steps it has."""
    rows = steps_of_training(seeds=(1, 2, 3))
    view = opened(written(rows), view="")
    assert view.page.locator(".multiples .thumb").count() == 5
    lines = view.page.locator("#view-overview .seeds").all_inner_texts()
    assert len(lines) == 1, lines
    assert (
        f"@ {STEPS[-2]}" in lines[0]
    )  # the last one that is compared with the end of the training


def test_the_chart_over_steps_says_its_last_step_and_its_spread(opened, page):
    """The last number below it is whole; the step that all are compared with has a number."""
    view = opened(page, view="")
    chart = view.page.locator(".curve", has=view.page.get_by_role("img", name="last step"))
    hint = chart.locator("xpath=..").locator(".hint").inner_text()
    assert hint == "cls, n = 500, mean and SD over 3 seeds, compared with step 5,000."
    drawing = chart.locator("svg").first.bounding_box()
    last = chart.locator("svg text", has_text="1,000").bounding_box()
    assert last["x"] + last["width"] <= drawing["x"] + drawing["width"]
    assert chart.locator("path[fill-opacity]").count() == 4  # a band for each layer
    boxes = [thumb.bounding_box() for thumb in view.page.locator(".multiples .thumb").all()]
    assert all(b["x"] - a["x"] - a["width"] >= 4 for a, b in pairwise(boxes))
    view.go(view="curves")
    assert "no curves" not in view.page.locator("#view-curves").inner_text()
    assert "Overview" in view.page.locator("#view-curves").inner_text()
