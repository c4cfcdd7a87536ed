"""A grid explains itself: where its readout stands, its heading, its legend, its saved picture."""

import io
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from simlab.similarity.catalogue import MEASURES
from support.lab.result_rows import grid

SIZES = [(1280, 900), (1080, 768), (390, 844), (360, 740)]


@pytest.fixture
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


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_readout_is_in_the_window(opened, layers13, size):
    """At every corner of the grid, wherever the page is scrolled to show it."""
    view = opened(layers13, size[0])
    view.page.set_viewport_size({"width": size[0], "height": size[1]})
    view.settle()
    columns, rows = view.edges()
    for x in (columns[0], columns[-2]):
        for y in (rows[0], rows[-2]):
            view.page.evaluate("scrollTo(0, 0)")
            view.hover(x + 3, y + 3)
            view.settle()
            assert is_inside(view, ".readout", size)
            assert is_inside(view, ".tip", size)
            cell, value = view.panel().locator(".tip div").all_inner_texts()[:2]
            assert view.readout().startswith(f"{cell}: {value}")


def test_a_tap_reads_and_a_second_one_opens(browser, layers13):
    from support.lab.browsers import Opened

    phone = {"width": 390, "height": 844}
    view = Opened(browser, layers13, viewport=phone, has_touch=True, is_mobile=True)
    view.go()
    columns, rows = view.edges()
    view.canvas().tap(position={"x": columns[3] + 4, "y": rows[5] + 4})
    view.settle()
    assert view.readout().startswith("FT[1], layer 5 × BASE, layer 3: ")
    assert is_inside(view, ".readout", (390, 844))
    assert not view.page.locator(".layer").count()
    view.canvas().tap(position={"x": columns[3] + 4, "y": rows[5] + 4})
    view.settle()
    assert view.page.get_by_role("heading", name="FT[1], layer 5", exact=True).is_visible()
    view.close()


def test_the_heading_says_what_is_shown(opened, layers13):
    view = opened(layers13)
    words = view.panel().locator(".headline").inner_text()
    assert "FT-BASE" in words
    assert "rt, cls, linear CKA (biased), n = 9" in words
    assert MEASURES["cka"].summary in words
    assert "docs/measures/cka" in words


def saved(view, kind):
    with view.page.expect_download() as started:
        view.panel().get_by_role("button", name=f"Save as {kind}").click()
    return Path(started.value.path()).read_bytes()


@pytest.fixture
def named(opened, written):
    long = "sentence-transformers/a-name-of-45-letters-FT"
    rows = grid("all", f"{long}[1]", f"{long}[2]")
    return opened(written([replace(row, value=np.nan) if not row.layer_x else row for row in rows]))


DRAW = """async (svg) => {
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  await image.decode();
  const canvas = new OffscreenCanvas(image.naturalWidth * 2, image.naturalHeight * 2);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  const { width, height } = canvas;
  return [width, height, ...context.getImageData(0, 0, width, height).data];
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


@pytest.mark.slow
def test_what_is_saved_as_svg_is_what_the_canvas_shows(named):
    pixels = np.round(imread(io.BytesIO(saved(named, "PNG")), format="png")[..., :3] * 255)
    width, height, *data = named.page.evaluate(DRAW, saved(named, "SVG").decode())
    drawn = np.array(data, dtype=float).reshape(height, width, 4)[..., :3]
    assert drawn.shape == pixels.shape
    assert np.abs(drawn - pixels).mean() < 6  # edges of letters and of the hatch
    assert (np.abs(drawn - pixels).max(axis=2) > 64).mean() < 0.04


def test_no_words_of_a_saved_picture_overlap(named):
    boxes = named.page.evaluate(BOXES, saved(named, "SVG").decode())
    words = {box[0] for box in boxes}
    assert any("…" in word and word.endswith("FT[2]") for word in words)
    assert {"linear CKA (biased)", "emb", "3"} <= words
    assert any(word.startswith("Hatched: undefined") for word in words)
    for (one, *a), (other, *b) in combinations(boxes, 2):
        apart = a[2] <= b[0] + 1 or b[2] <= a[0] + 1 or a[3] <= b[1] + 3 or b[3] <= a[1] + 3
        assert apart, (one, other)


def test_undefined_cells_are_hatched(named):
    """Two colours of the hatch in one cell of the lowest row, and one in another cell."""
    columns, rows = named.edges()
    places = {
        (row, x, y): (columns[1] + x, rows[row] + y)
        for row in (0, 2)
        for x in range(4, 16)
        for y in range(4, 16)
    }
    seen = named.colours("Grid A", places)
    assert len({colour for (row, *_), colour in seen.items() if row == 0}) > 2
    assert len({colour for (row, *_), colour in seen.items() if row == 2}) == 1
