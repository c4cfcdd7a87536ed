"""A grid explains itself: where its readout stands and how soon, its heading, its picture."""

import base64
import io
import statistics
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from matplotlib.image import imread

from bench.report import HOVER, JOBS
from simlab.report.write import write_report
from simlab.representations.kinds import KINDS
from simlab.results.results import write_results
from simlab.similarity.catalogue import MEASURES
from support.lab.result_rows import grid, joint_grid

LONG = "sentence-transformers/a-name-of-45-letters-FT"
SIZES = [(1280, 900), (360, 740)]


@pytest.fixture(scope="module")
def layers13(written):
    rows = [
        replace(row, layer_x=4 * i + row.layer_x, layer_y=4 * j + row.layer_y, value=row.value)
        for i in range(3)
        for j in range(3)
        for row in grid("FT-BASE", "FT[1]", "BASE", seed=3 * i + j)
    ]
    return written(rows)


def is_inside(view, place, size):
    box = view.panel().locator(place).bounding_box()
    across = box["x"] >= 0 and box["x"] + box["width"] <= size[0]
    return across and box["y"] >= 0 and box["y"] + box["height"] <= size[1]


@pytest.mark.deep
def test_the_readout_is_in_the_window(opened, layers13):
    """At every corner of the grid, wherever the page is scrolled to show it."""
    view = opened(layers13)
    for width, height in SIZES:
        view.page.set_viewport_size({"width": width, "height": height})
        view.go()
        columns, rows = view.edges()
        for x, y in product((columns[0], columns[-2]), (rows[0], rows[-2])):
            view.page.evaluate("scrollTo(0, 0)")
            view.hover(x + 3, y + 3)
            view.settle()
            assert is_inside(view, ".readout", (width, height)), (width, x, y)
            assert is_inside(view, ".tip", (width, height)), (width, x, y)
            cell, value = view.panel().locator(".tip div").all_inner_texts()[:2]
            assert view.readout().startswith(f"{cell}: {value}")


@pytest.fixture
def phone(browser, layers13):
    from support.lab.browsers import Opened

    size = {"width": 390, "height": 844}
    view = Opened(browser, layers13, viewport=size, has_touch=True, is_mobile=True)
    view.go()
    yield view
    view.close()


def test_a_tap_reads_and_a_second_one_opens(phone):
    columns, rows = phone.edges()
    phone.canvas().tap(position={"x": columns[3] + 4, "y": rows[5] + 4})
    phone.settle()
    assert phone.readout().startswith("FT[1], layer 5 × BASE, layer 3: ")
    assert is_inside(phone, ".readout", (390, 844))
    assert not phone.page.locator(".layer").count()
    phone.canvas().tap(position={"x": columns[3] + 4, "y": rows[5] + 4})
    phone.settle()
    heading = phone.page.get_by_role("heading", name="FT[1], layer 5", exact=True)
    assert 0 <= heading.bounding_box()["y"] < 700


def drag(view, x, y, across=0, down=0):
    """Drag a finger over the page; a positive number of pixels is to the right, or downwards."""
    client = view.context.new_cdp_session(view.page)

    def touch(kind, *shares):
        points = [{"x": x + share * across, "y": y + share * down} for share in shares]
        client.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 0)
    for step in range(1, 11):
        touch("touchMove", step / 10)
    touch("touchEnd")
    view.page.wait_for_timeout(300)  # until the page has come to rest


@pytest.mark.deep
def test_a_finger_that_drags_across_a_whole_grid_reads_its_cells(phone):
    columns, rows = phone.edges()
    phone.canvas().scroll_into_view_if_needed()
    box = phone.canvas().bounding_box()
    drag(phone, box["x"] + columns[2] + 4, box["y"] + rows[4] + 4, columns[7] - columns[2])
    assert phone.readout().startswith("FT[1], layer 4 × BASE, layer 7: ")
    assert not phone.page.locator(".layer").count()


@pytest.mark.deep
def test_a_finger_leaves_a_zoomed_grid_at_its_end(phone):
    """At the lowest layers the page scrolls; elsewhere the grid moves and the page stays."""
    phone.canvas().focus()
    phone.press("PageDown", "+", "+")
    phone.page.evaluate("scrollTo(0, 200)")
    box = phone.canvas().bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def place():
        return phone.page.evaluate("scrollY")

    before = place()
    drag(phone, *middle, down=60)  # the grid moves to its middle
    assert place() == before
    drag(phone, *middle, down=-20)
    assert place() == before
    drag(phone, *middle, down=-150)
    phone.press("PageDown")
    drag(phone, *middle, down=-150)
    assert place() > before


@pytest.mark.deep
def test_a_grid_begins_in_the_upper_part_of_the_window(opened, layers13):
    """A small screen folds the fields; a click shows them."""
    view = opened(layers13)
    assert view.canvas().bounding_box()["y"] < 310
    assert view.field("Order").is_visible()
    view.page.set_viewport_size({"width": 390, "height": 844})
    view.again()
    assert view.canvas().bounding_box()["y"] < 480
    assert not view.field("Order").is_visible()
    view.page.get_by_text("Show, order, colours, compare").click()
    view.choose(view.field("Order"), "by layer")
    assert view.field("Order").is_visible()
    assert "order=layer" in view.page.url


def test_the_heading_says_what_is_shown(opened, layers13):
    view = opened(layers13)
    words = view.panel().locator(".headline").inner_text()
    assert "FT-BASE" in words
    assert "rt, cls, linear CKA (biased), n = 9" in words
    assert MEASURES["cka"].summary in words
    assert "docs/measures/cka" in words
    assert KINDS["cls"].summary in words
    assert "ORIG is a model before fine-tuning" in view.page.locator("#view-grids").inner_text()


DRAW = """async (svg) => {
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.naturalWidth * 2, image.naturalHeight * 2];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL().split(",")[1];
}"""
BOXES = """(svg) => {
  const place = document.createElement("div");
  place.append(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement);
  document.body.append(place);
  return [...place.querySelectorAll("text")].map((text) => {
    const { x, y, width, height } = text.getBoundingClientRect();
    return [text.textContent, x, y, x + width, y + height];
  });
}"""


def test_a_saved_picture_is_what_the_canvas_shows(opened, written):
    """No words overlap in it, and undefined cells are hatched: two colours, where others have one.

    The lowest row is undefined.
    """
    rows = grid("all", f"{LONG}[1]", f"{LONG}[2]")
    rows = [replace(row, value=np.nan) if not row.layer_x else row for row in rows]
    view = opened(written(rows))
    columns, downs = view.edges()
    places = {
        (row, x, y): (columns[1] + x, downs[row] + y)
        for row in (0, 2)
        for x in range(4, 16)
        for y in range(4, 16)
    }
    seen = view.colours("Grid A", places)
    assert len({colour for (row, *_), colour in seen.items() if row == 0}) > 2
    assert len({colour for (row, *_), colour in seen.items() if row == 2}) == 1
    svg = view.saved("Save as SVG")[1].decode()
    again = base64.b64decode(view.page.evaluate(DRAW, svg))
    pixels, drawn = (
        np.round(imread(io.BytesIO(png), format="png")[..., :3] * 255)
        for png in (view.saved("Save as PNG")[1], again)
    )
    assert drawn.shape == pixels.shape
    assert np.abs(drawn - pixels).mean() < 6  # edges of letters and of the hatch
    assert (np.abs(drawn - pixels).max(axis=2) > 64).mean() < 0.04
    boxes = view.page.evaluate(BOXES, svg)
    words = {box[0] for box in boxes}
    assert any("…" in word and word.endswith("FT[2]") for word in words)
    assert {"linear CKA (biased)", "emb", "3"} <= words
    assert any(word.startswith("Hatched: undefined") for word in words)
    for (one, *a), (other, *b) in combinations(boxes, 2):
        apart = a[2] <= b[0] + 1 or b[2] <= a[0] + 1 or a[3] <= b[1] + 3 or b[3] <= a[1] + 3
        assert apart, (one, other)


WORDS = """
  window.words = new Map();
  const plain = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    const { width } = this.measureText(text), before = { center: 0.5, end: 1 }[this.textAlign] ?? 0;
    window.words.set(`${text} ${x} ${y}`, [text, x - width * before, y, width]);
    plain.call(this, text, x, y);
  };"""


@pytest.mark.deep
def test_long_names_beside_each_other_are_told_apart_on_the_screen(opened, written):
    """Each at its rows and at its columns, by its end; the middle is left out."""
    view = opened(written(joint_grid([f"{LONG}[1]", f"{LONG}[2]"])))
    view.page.add_init_script(WORDS)
    view.again()
    boxes = [box for box in view.page.evaluate("[...window.words.values()]") if "…" in box[0]]
    for end in ("FT[1]", "FT[2]"):
        assert sum(box[0].endswith(end) for box in boxes) == 2, boxes
    for (one, *a), (other, *b) in combinations(boxes, 2):
        assert abs(a[1] - b[1]) > 8 or a[0] + a[2] < b[0] or b[0] + b[2] < a[0], (one, other)


@pytest.mark.deep
def test_a_tip_beside_a_small_grid_covers_no_cell(opened, small):
    view = opened(small)
    columns, rows = view.edges()
    canvas = view.canvas().bounding_box()
    for row in (0, 3):
        view.hover(columns[0] + 5, rows[row] + 5)
        tip = view.panel().locator(".tip")
        tip.wait_for()
        box = tip.bounding_box()
        assert box["x"] >= canvas["x"] + columns[-1]
        middle = canvas["y"] + rows[row] + 5
        assert box["y"] <= middle <= box["y"] + box["height"] + 40
        assert "A, " in tip.inner_text()


@pytest.fixture(scope="module")
def thousand(tmp_path_factory):
    """The page of one joint grid of 1,001 layers, without intervals and p-values."""
    folder = tmp_path_factory.mktemp("pages")
    frame = replace(JOBS["1,001 x 1,001"], whole=False).frame()
    write_results(frame, folder / "thousand.parquet")
    return write_report(folder / "thousand.parquet", folder / "thousand.html")


@pytest.mark.slow
def test_the_mouse_moves_over_a_thousand_layers_within_a_frame(opened, thousand):
    """Along columns and along rows, once in twelve rounds: others use the machine too."""
    view = opened(thousand, order="clustered")
    view.choose("Grid", "all: all of 77 models")
    for down in (True, False):
        rounds: list[float] = []
        while min(rounds, default=16) >= 16 and len(rounds) < 12:
            times, said = view.canvas().evaluate(HOVER, [40, down])
            rounds.append(statistics.quantiles(times, n=10)[0])  # of moves that were left alone
            assert " × " in said
        assert min(rounds) < 16, (down, rounds)
