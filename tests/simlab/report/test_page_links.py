"""Addresses: a link shows the same view, whatever it says."""

import numpy as np
import pytest

from support.lab.pages import WHOLE
from support.lab.result_rows import grid


def test_a_link_shows_the_same_view(opened, studies):
    view = opened(studies, a=WHOLE)
    view.choose("Representation", "word-last")
    view.choose("Measure", "SVCCA")
    for label, words in (("Order", "by layer"), ("Colour range", "fitted to the grid"),
                         ("Colours", "cividis")):  # fmt: skip
        view.choose(view.field(label), words)
    view.find("-model:ft[2]")
    view.canvas().focus()
    view.press("+", "ArrowUp", "ArrowRight", "Enter", "ArrowRight")
    view.canvas().blur()  # the words at the pointer are not in a link

    def words():
        panel = view.panel().inner_text().partition("Save as SVG")[0]  # without what is said
        return view.readout(), panel, view.page.locator(".layer").inner_text()

    before = words()
    points = {(x, y): (x * 10.0, y * 10.0) for x in range(50) for y in range(50)}
    picture = view.colours("Grid A", points)
    view.page.wait_for_timeout(400)  # until the cursor is in the address
    view.again()
    assert words() == before
    for _ in range(40):  # a busy machine draws its next frame late
        again = view.colours("Grid A", points)
        difference = np.abs(np.array([again[at] for at in points]) - list(picture.values())).mean()
        if difference < 2:
            break
        view.page.wait_for_timeout(100)
    assert difference < 2
    assert view.page.locator("#notice").is_hidden()
    view.go(a="rt~cls~no~such~1")
    assert "names a grid that this page does not have" in view.page.locator("#notice").inner_text()


@pytest.mark.deep
def test_a_link_with_a_cell_shows_no_words_at_a_pointer(opened, small):
    """Nobody points at it: the readout says the cell."""
    view = opened(small, cell="A, layer 1~B, layer 2")
    assert view.readout().startswith("A, layer 1 × B, layer 2")
    assert not view.panel().locator(".tip").is_visible()
    view.canvas().focus()
    view.press("ArrowUp")
    assert view.panel().locator(".tip").is_visible()


NONSENSE = [
    *({"colours": name} for name in ("no such", "constructor")),
    *({"zoom": zoom} for zoom in ("", "nan", "a~b~c", "1e9~0~0", "-3~1~1", "Infinity~0~0")),
    *({"layer": layer} for layer in ("a", "a~A~9", "c~A~x", "a~none~1")),
    {"order": "no such", "range": "no such", "cell": "no such", "find": "%~%"},
]


@pytest.mark.deep
def test_a_link_that_says_nonsense_shows_the_grid(opened, small):
    view = opened(small)
    for state in NONSENSE:
        view.go(**{"cell": "A, layer 1~B, layer 2", **state})
        assert view.panel().locator("tbody th").count() == 4, state
        assert view.page.locator("#notice").is_hidden(), state
        for label, value in (("Colours", "viridis"), ("Order", "model")):
            choice = view.field(label)
            assert choice.input_value() == value, state


def test_the_back_key_undoes_choices_and_not_letters(opened, small):
    view = opened(small)
    view.choose("Grid", "A-C")
    order = view.field("Order")
    order.select_option("by layer")
    view.settle()
    field = view.page.get_by_role("searchbox", name="Filter of all views")
    field.press_sequentially("cka")
    view.settle()
    view.page.go_back()
    view.settle()
    assert (order.input_value(), view.choice("Grid").input_value()) == ("model", "A-C")
    view.page.go_back()
    view.settle()
    assert view.choice("Grid").input_value() == "A-B"
    view.page.go_forward()
    view.settle()
    assert view.choice("Grid").input_value() == "A-C"


@pytest.mark.deep
def test_only_what_changed_is_drawn_anew(opened, written):
    """A layer that is opened leaves the grid as it is; a field that is used keeps the focus."""
    rows = [row for measure in ("cka", "svcca") for row in grid("A-B", "A", "B", measure=measure)]
    view = opened(written(rows), view="overview")
    field = view.page.get_by_role("combobox", name="Measure of all pictures")
    field.focus()
    view.press("ArrowDown")
    assert "measure=" in view.page.url
    assert field.evaluate("(box) => box === document.activeElement")
    view.page.get_by_role("link", name="Grids").click()
    view.settle()
    parts = "[...document.querySelectorAll('#view-grids :is(option, .scale b)')]"
    mark = f"() => {parts}.forEach((part) => {{ part.kept = true; }})"
    kept = f"() => {parts}.every((part) => part.kept)"
    view.page.evaluate(mark)
    size = view.canvas().bounding_box()
    view.canvas().focus()
    view.press("ArrowUp", "Enter")
    assert view.page.get_by_role("region", name="Layer").is_visible()
    assert view.page.evaluate(kept)
    assert view.canvas().bounding_box() == size
    view.choose(view.field("Colours"), "grey")
    assert not view.page.evaluate(kept)
    view.page.get_by_role("link", name="Overview").click()  # and back: the layer is open still
    view.settle()
    view.page.get_by_role("link", name="Grids").click()
    view.settle()
    assert view.page.get_by_role("region", name="Layer").is_visible()
