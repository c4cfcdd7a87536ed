"""Two grids beside each other: which ones, the same layers in every order, and their names."""

import csv
import io
from dataclasses import replace

import pytest

from support.lab.result_rows import grid, joint_grid

COMPARE = "Compare with a second grid"


def copied(view, panel):
    """Return the rows of the grid that a panel shows, through its button."""
    view.panel(panel).get_by_role("button", name="Copy as CSV").click()
    view.said("Copied.")
    text = view.page.evaluate("navigator.clipboard.readText()")
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("order", ["by model", "by clustering"])
def test_a_difference_is_of_the_same_layers_in_every_order(opened, written, order):
    """Two grids whose clusterings differ: the second one and the difference follow the first."""
    one, other = grid("A-B", "A", "B"), grid("A-C", "A", "C", seed=1)
    view = opened(written(one + other))
    view.page.get_by_label(COMPARE).check()
    view.settle()
    view.page.get_by_role("combobox", name="Order", exact=True).select_option(order)
    view.settle()
    a, b = ({(r.layer_x, r.layer_y): r.value for r in rows} for rows in (one, other))
    lines = copied(view, "Difference")
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


def test_grids_that_differ_in_their_rows_alone_are_both_shown(opened, written):
    few = grid("A-B", "A", "B")
    many = [replace(row, n=1200, value=row.value / 2) for row in few]
    view = opened(written(few + many))
    choice = view.choice("Grid")
    assert choice.locator("option").all_inner_texts() == ["A-B, n = 9", "A-B, n = 1,200"]
    for name, rows in (("A-B, n = 1,200", many), ("A-B, n = 9", few)):
        choice.select_option(name)
        view.settle()
        found = [float(line["value"]) for line in copied(view, "Grid A")]
        assert found == pytest.approx([row.value for row in rows], abs=1e-4)
    view.page.get_by_label(COMPARE).check()
    view.settle()
    view.canvas().focus()
    view.press("ArrowUp")
    assert view.readout("Difference").endswith("; n = 9; n = 1,200")


def test_the_second_grid_has_the_size_of_the_first(opened, written):
    """A grid of another measure rather than one of another size; of the same measure at best."""
    joint = [row for name in ("svcca", "pwcca") for row in joint_grid(["A", "B"], measure=name)]
    pairs = [*grid("A-A", "A", "A", measure="svcca"), *grid("A-B", "A", "B", measure="pwcca")]
    pairs = [replace(row, kind="word-last") for row in pairs]
    view = opened(written(joint + pairs))
    for first, second in (("all: all of 2 models", "PWCCA"), ("A-A", "PWCCA")):
        view.choice("Grid").select_option(first)
        view.settle()
        view.page.get_by_label(COMPARE).check()
        view.settle()
        assert view.choice("Measure", "Grid B").input_value() == second
        assert view.panel("Difference").is_visible()
        label = view.canvas("Difference").get_attribute("aria-label")
        assert "A: rt, word-last, SVCCA, n = 9; B: rt, word-last, PWCCA, n = 9" in label
        view.page.get_by_label(COMPARE).uncheck()
        view.settle()
