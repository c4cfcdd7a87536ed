"""Pictures that leave the page: files of grids, whatever the theme and the names, and paper."""

import io
import json
import re
from dataclasses import replace
from itertools import product
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.image import imread

from simlab.results.results import ALIGNMENT, HELDOUT, MSE, RELATIVE, ResultRow
from support.lab.pages import HOSTILE
from support.lab.result_rows import grid, joint_grid

SVG = "{http://www.w3.org/2000/svg}"


def texts_of(picture):
    return [text.text for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def pixels_of(png):
    return np.round(imread(io.BytesIO(png), format="png")[..., :3] * 255)


@pytest.mark.parametrize(
    "models", [pytest.param(17, id="an image", marks=pytest.mark.deep), pytest.param(2, id="cells")]
)
def test_a_picture_is_dark_on_white_and_has_all_cells(opened, written, models):
    """Of a page in the dark that is zoomed in; the cells of a large grid are one image."""
    rows = joint_grid([f"M{number}" for number in range(models)])
    view = opened(written(rows), dark=True)
    view.canvas().focus()
    view.press("ArrowUp", "+", "+")
    pixels = pixels_of(view.saved("Save as PNG")[1])
    assert (pixels[[0, -1]] == 255).all()
    left = pixels[100:-200, 10:300].min(axis=2)  # names of models and layers
    assert left.min() < 60
    assert (left > 200).mean() > 0.8
    side = models * 4
    cell = 2 * min(28, 2000 // side)
    at = np.arange(side) * cell + cell // 2
    # Beside the letters; the names of rows have 170 units, and the strips of model and layer 14.
    rows_at = 34 * 2 + at[::-1] - cell // 2 + 4  # row 0 is at the bottom
    colours = pixels[np.ix_(rows_at, (170 + 14) * 2 + at)].reshape(-1, 3)
    value = np.array([row.value for row in rows])
    wanted = np.round(np.array(colormaps["viridis"](value))[:, :3] * 255)
    assert np.abs(colours - wanted).max() < 16  # as if a value were off by .02


def test_a_picture_has_the_names_of_its_rows_and_what_it_shows(opened, written):
    rows = joint_grid(["A", "B"], layers=2)
    name, content = opened(written(rows), order="clustered").saved("Save as SVG")
    assert name == "all-all-of-2-models-rt-word-last-SVCCA-n-9.svg"
    texts = texts_of(content)
    assert texts[0] == "all: all of 2 models, rt, word-last, SVCCA, n = 9"
    assert {"A", "B", "emb", "1"} <= set(texts)
    assert texts[-7:-4] == ["SVCCA", ".00", "1.00"]  # the colours
    assert texts[-4].startswith("n = 9 is few")
    assert texts[-3:] == [
        "Strips, from outside: model, layer (the darkest is the lowest)",
        "■ A",
        "■ B",
    ]


@pytest.mark.deep
def test_the_colours_of_a_small_grid_are_whole(opened, small):
    root = ElementTree.fromstring(opened(small).saved("Save as SVG")[1])
    ends = [int(box.get("x")) + int(box.get("width")) for box in root.iter(f"{SVG}rect")]
    texts = [(float(text.get("x")), text) for text in root.iter(f"{SVG}text")]
    assert max(ends) == int(root.get("width"))  # the ground, and nothing beyond it
    assert max(x for x, text in texts if text.get("text-anchor") == "start") + 30 <= max(ends)


@pytest.mark.deep
def test_a_picture_of_blocks_has_their_frames(opened, studies):
    view = opened(studies, a="rt~cls~linear CKA (biased)~FT[1]-FT[1]~1000")
    root = ElementTree.fromstring(view.saved("Save as SVG")[1])
    frames = [box for box in root.iter(f"{SVG}rect") if box.get("stroke")]
    assert len(frames) == 4  # each on a dark one
    # Layer 0 is in no block, and another layer is alone.
    assert sum(int(frame.get("width")) for frame in frames[::2]) == 5 * 28


@pytest.mark.deep
def test_hostile_names_do_not_break_a_picture(opened, written):
    names = [*HOSTILE, "]]>", "bell\x07\x1b[0m", "模型"]
    view = opened(written(joint_grid(names, layers=1)))
    texts = texts_of(view.saved("Save as SVG")[1])
    for name in names:
        assert re.sub("[\x07\x1b]", "\ufffd", name) in texts
    assert view.saved("Save as PNG")[1].startswith(b"\x89PNG")
    view = opened(written(grid("模型-B", "模型", "B")))
    assert view.saved("Save as SVG")[0].startswith("模型-B-rt-cls")


@pytest.mark.deep
def test_values_that_do_not_fit_are_not_written(opened, written):
    """Seven letters are wider than a cell, three are not."""
    for value, is_written in ((-1234.5, False), (-0.5, True)):
        rows = [replace(row, value=value) for row in joint_grid("ABCDE")]
        view = opened(written(rows))
        columns, downs = view.edges()
        assert 27 <= columns[1] - columns[0] < 40
        places = {
            (x, y): (columns[1] + x, downs[1] + y) for x in range(3, 24) for y in range(3, 24)
        }
        assert (len(set(view.colours("Grid A", places).values())) > 1) is is_written


@pytest.mark.deep
def test_paper_says_what_it_shows_and_leaves_nothing_out(opened, studies):
    view = opened(studies)
    caption = view.page.get_by_text("rt, cls, linear CKA (biased), n = 1,000", exact=True)
    assert caption.is_visible()
    view.page.emulate_media(media="print")
    assert caption.is_visible()
    view.page.emulate_media(media="screen")
    view.go(view="curves")
    loaded = view.page.locator("figure img").evaluate_all(
        "(images) => Promise.all(images.map((image) => image.decode().then(() => true)))"
    )
    assert len(loaded) > 2
    details = view.page.locator("figure details").first
    details.locator("summary").click()
    table = details.locator(".scroll")
    table.wait_for()
    heights = "(box) => [box.clientHeight, box.scrollHeight]"
    assert np.diff(table.evaluate(heights)) > 0
    view.page.emulate_media(media="print")
    assert np.diff(table.evaluate(heights)) == 0


@pytest.mark.deep
def test_paper_has_grids_beside_each_other_and_no_focus(opened, studies):
    """The buttons that open seeds and blocks are words on paper."""
    view = opened(studies)
    view.compare()
    view.page.set_viewport_size({"width": 718, "height": 1000})  # A4
    view.canvas().focus()
    view.press("ArrowUp")
    view.page.emulate_media(media="print")
    a, b = (view.canvas(name).bounding_box() for name in ("Grid A", "Grid B"))
    assert abs(a["y"] - b["y"]) < 1
    assert b["x"] >= a["x"] + a["width"]
    assert view.canvas().evaluate("(canvas) => getComputedStyle(canvas).outlineStyle") == "none"
    view.page.emulate_media(media="screen")
    view.go(view="overview")
    view.page.emulate_media(media="print")
    blocks = view.page.locator(".blocks button")
    assert blocks.first.is_visible()
    assert blocks.first.evaluate("(box) => getComputedStyle(box).borderStyle") == "none"


@pytest.mark.deep
@pytest.mark.parametrize(("models", "layers", "has_lines"), [(5, 4, True), (60, 1, False)])
def test_lines_between_groups_do_not_cover_small_cells(opened, written, models, layers, has_lines):
    """Seen as white pixels along a row of a grid whose values are all low."""
    rows = joint_grid([f"M{number}" for number in range(models)], layers=layers)
    view = opened(written([replace(row, value=0.1) for row in rows]))
    columns, downs = view.edges()
    inside = layers * (models // 2) + 1  # a row that is not beside a line
    places = {x: (x + 0.5, downs[inside] + 2) for x in range(int(columns[0]), int(columns[-1]))}
    white = np.mean([min(colour) > 120 for colour in view.colours("Grid A", places).values()])
    assert bool(white) is has_lines
    assert white < 0.03


def test_figures_have_the_ground_of_the_page(opened, studies):
    """In the dark too; files stay on white."""
    view = opened(studies, view="curves", dark=True)
    figure = view.page.locator("figure").first
    assert np.median(pixels_of(figure.locator("img").screenshot())) < 0.2 * 255
    assert np.median(pixels_of(view.saved("Save as PNG", figure)[1])) == 255
    assert b"<svg " in view.saved("Save as SVG", figure)[1][:1000]


@pytest.mark.deep
def test_the_first_window_of_curves_shows_a_figure(opened, written):
    """Of many figures too, whose names are the field's words and fit the list."""
    rows = [
        ResultRow(
            experiment=ALIGNMENT, label_x=x, label_y=y, seed_x=0, seed_y=1, layer_x=layer,
            layer_y=layer, task="rt", kind=kind, measure=measure, n=9, value=0.1 * layer,
            options=json.dumps({"method": method, "rows": HELDOUT}),
        )
        for kind, measure in product(("mean-all", "cls"), (RELATIVE, MSE))
        for method in ("linear", "cca", "inn")
        for layer in range(3)
        for x, y in (("A", "B"), ("B", "A"))
    ]  # fmt: skip
    view = opened(written(rows))
    for width, height in ((1280, 900), (390, 844)):
        view.page.set_viewport_size({"width": width, "height": height})
        view.go(view="curves")
        contents = view.page.get_by_role("navigation", name="Contents")
        if width < 900:
            assert not contents.is_visible()
            view.page.get_by_text("Contents: 16 figures").click()
        words = contents.inner_text()
        assert "rt: alignment of mean-all" in words
        assert "invertible networks of equal layers, mean squared error" in words
        assert contents.evaluate("(list) => list.scrollWidth <= list.clientWidth")
        contents.get_by_role("button").last.click()
        view.settle()
        images = [image for image in view.page.locator("figure img").all() if image.is_visible()]
        assert len(images) == 1
        box = images[0].bounding_box()
        assert box["y"] + min(box["height"], 200) < height
        assert view.page.evaluate("document.documentElement.scrollHeight") < 2 * height
