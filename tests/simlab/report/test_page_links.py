"""Addresses: a link shows the same view, whatever it says."""

import numpy as np

from support.lab.pages import WHOLE
from support.lab.result_rows import grid


def test_a_link_shows_the_same_view(opened, studies):
    view = opened(studies, a=WHOLE)
    view.choice("Representation").select_option("word-last")
    view.settle()
    view.choice("Measure").select_option("SVCCA")
    view.settle()
    for label, words in (("Order", "by layer"), ("Colour range", "fitted to the grid"),
                         ("Colours", "cividis")):  # fmt: skip
        view.page.get_by_role("combobox", name=label, exact=True).select_option(words)
        view.settle()
    view.page.get_by_role("searchbox", name="Filter of all views").fill("-model:ft[2]")
    view.settle()
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


def test_a_link_with_a_cell_shows_no_words_at_a_pointer(opened, written):
    """Nobody points at it: the readout says the cell."""
    view = opened(written(grid("A-B", "A", "B")), cell="A, layer 1~B, layer 2")
    assert view.readout().startswith("A, layer 1 × B, layer 2")
    assert not view.panel().locator(".tip").is_visible()
    view.canvas().focus()
    view.press("ArrowUp")
    assert view.panel().locator(".tip").is_visible()


def test_a_link_to_a_grid_that_is_not_there_says_so(opened, studies):
    view = opened(studies, a="rt~cls~no~such~1")
    assert "names a grid that this page does not have" in view.page.locator("#notice").inner_text()


NONSENSE = [
    *({"colours": name} for name in ("no such", "constructor")),
    *({"zoom": zoom} for zoom in ("", "nan", "a~b~c", "1e9~0~0", "-3~1~1", "Infinity~0~0")),
    *({"layer": layer} for layer in ("a", "a~A~9", "c~A~x", "a~none~1")),
    {"order": "no such", "range": "no such", "cell": "no such", "find": "%~%"},
]


def test_a_link_that_says_nonsense_shows_the_grid(opened, written):
    view = opened(written(grid("A-B", "A", "B")))
    for state in NONSENSE:
        view.go(**{"cell": "A, layer 1~B, layer 2", **state})
        columns, rows = view.edges()
        assert (len(columns), len(rows)) == (5, 5), state
        assert view.page.locator("#notice").is_hidden(), state
        for label, value in (("Colours", "viridis"), ("Order", "model")):
            choice = view.page.get_by_role("combobox", name=label, exact=True)
            assert choice.input_value() == value, state


def test_the_back_key_undoes_choices_and_not_letters(opened, written):
    view = opened(written(grid("A-B", "A", "B") + grid("A-C", "A", "C")))
    view.choice("Grid").select_option("A-C")
    view.settle()
    order = view.page.get_by_role("combobox", name="Order", exact=True)
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
    view.page.get_by_role("combobox", name="Colours", exact=True).select_option("grey")
    view.settle()
    assert not view.page.evaluate(kept)
    view.page.get_by_role("link", name="Overview").click()  # and back: the layer is open still
    view.settle()
    view.page.get_by_role("link", name="Grids").click()
    view.settle()
    assert view.page.get_by_role("region", name="Layer").is_visible()
