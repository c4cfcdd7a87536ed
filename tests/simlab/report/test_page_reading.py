"""What a reader of a grid sees: its direction, why cells are grey, what was done, how to leave."""

import re
from dataclasses import replace
from pathlib import Path

from simlab.figures.style import undefined_note
from support.lab.result_rows import grid, joint_grid


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
    with view.page.expect_download() as started:
        view.panel().get_by_role("button", name="Save as SVG").click()
    drawn = Path(started.value.path()).read_text()
    place = r'x="(\d+)" y="(\d+)"[^>]*><title>'
    first, up = (
        [int(number) for number in re.search(place + words, drawn).groups()]
        for words in ("A, embeddings × A, embeddings", "A, layer 1 × A, embeddings")
    )
    assert (first[0], first[1] - 28) == (up[0], up[1])


def test_escape_closes_a_layer_from_anywhere(opened, written):
    view = opened(written(grid("A-B", "A", "B")))
    layer = view.page.get_by_role("region", name="Layer A, layer 1", exact=True)
    order = view.page.get_by_role("combobox", name="Order", exact=True)
    for focused in (view.canvas(), order):
        view.canvas().focus()
        view.press("Home", "PageDown", "ArrowUp", "Enter")
        assert layer.is_visible()
        focused.focus()
        view.press("Escape")
        assert not layer.is_visible()
    assert "the focus" in view.page.locator("#view-grids .hint").last.inner_text()


def test_what_is_said_covers_no_cell_and_goes_with_the_view(opened, written):
    view = opened(written(grid("A-B", "A", "B")), width=380)
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
    words = view.panel().locator(".scale").inner_text()
    assert undefined_note("cls").removeprefix("Grey: ") in words
    view.page.get_by_label("Compare with a second grid").check()
    view.settle()
    assert "undefined in A or in B" in view.panel("Difference").locator(".scale").inner_text()
    assert "undefined" not in view.panel("Grid B").locator(".scale").inner_text()
