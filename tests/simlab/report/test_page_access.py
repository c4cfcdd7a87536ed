"""Everybody can read the page: in the dark, on a phone, on paper, by keyboard, by screen reader."""

import io
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from matplotlib.image import imread

from support.lab.pages import WHOLE
from support.lab.result_rows import grid, joint_grid

# States of the page that together show all that it has.
STATES = {
    "overview": {"view": "overview"},
    "grids": {"layer": "a~FT[1]~3", "cell": "FT[1], layer 3~FT[2], layer 2"},
    "two grids": {
        "a": "rt~cls~linear CKA (biased)~FT[1]-FT[1]~1000",
        "b": "rt~cls~linear CKA (biased)~FT[1]-FT[2]~1000",
        "cell": "FT[1], layer 3~FT[1], layer 2",
    },
    "curves": {"view": "curves"},
    "runs": {"view": "runs"},
}
FINGERS = "button, select, summary, nav a, label:has([type=checkbox]), [type=search]"


def unfold(view):
    """Open what is folded, of many tables the first."""
    folded = "[...document.querySelectorAll('details')].slice(0, 2)"
    view.page.evaluate(f"() => {folded}.forEach((part) => {{ part.open = true; }})")
    view.settle()


@pytest.mark.parametrize(
    "dark", [False, pytest.param(True, marks=pytest.mark.deep)], ids=["light", "dark"]
)
def test_no_serious_violation(opened, studies, violations, dark):
    view = opened(studies, dark=dark)
    for name, state in STATES.items():
        view.go(**state)
        unfold(view)
        assert violations(view, "serious", "critical") == [], name
    view.page.evaluate("() => document.body.append(document.createElement('img'))")
    assert [found[0] for found in violations(view, "serious", "critical")] == ["image-alt"]


@pytest.mark.deep
def test_a_phone_shows_all_states(opened, studies):
    """Nothing is wider than the screen, letters can be read, and a finger finds all controls.

    44 pixels, as the guidelines of platforms ask for.
    """
    view = opened(studies, width=360)
    for name, state in STATES.items():
        view.go(**state)
        boxes = view.page.locator(FINGERS).evaluate_all("""(all) => all.map((one) => {
          const { width, height } = one.getBoundingClientRect();
          return [one.textContent || one.type, width, height];
        })""")
        assert len(boxes) > 4
        assert [box for box in boxes if box[1] and min(box[1:]) < 44] == [], name
        if name == "grids":
            require_letters(view)
            columns, rows = view.edges()
            assert columns[-1] - columns[0] > 200
            assert rows[-1] - rows[-2] > 200  # from the highest row to the end of the lowest
        unfold(view)
        assert view.width() <= 360, name
        if "cell" in state:
            box = view.canvas().bounding_box()
            assert box["x"] >= 0
            assert box["width"] <= 360


def require_letters(view):
    """Check the size of the letters of the profile of a layer."""
    assert view.page.locator(".layer svg text").first.bounding_box()["height"] > 10
    assert view.page.locator("h1").bounding_box()["y"] > 8


@pytest.mark.deep
def test_larger_windows_show_all_states(opened, studies):
    view = opened(studies)
    for width in (768, 1280, 1400):
        view.page.set_viewport_size({"width": width, "height": 800})
        for name, state in STATES.items():
            view.go(**state)
            if name == "grids":
                require_letters(view)
            unfold(view)
            assert view.width() <= width, (name, width)


@pytest.mark.deep
def test_long_names_are_broken(opened, written):
    """In headings, choices, lists, what is read out, and what is said for a moment."""
    view = opened(written(joint_grid(["M" * 400, "N" * 400, "O" * 400])), width=360)
    unfold(view)
    view.canvas().focus()
    view.press("ArrowUp", "Enter")
    assert view.page.locator("#done").inner_text().endswith("is open beside or below its grid.")
    assert view.page.get_by_role("region", name="Layer").is_visible()
    assert view.width() <= 360
    view.go(view="runs")
    assert view.width() <= 360


@pytest.mark.deep
def test_many_tasks_and_long_names_of_tasks_leave_room_for_the_page(opened, written):
    tasks = ["T" * 400, *(f"task {number}" for number in range(50))]
    rows = [replace(row, task=task) for task in tasks for row in grid("A-B", "A", "B")]
    view = opened(written(rows))
    for width, name in product((1280, 360), ("overview", "grids", "curves", "runs")):
        view.page.set_viewport_size({"width": width, "height": 800})
        view.go(view=name)
        assert view.width() <= width, name
        assert view.page.locator("main").bounding_box()["y"] < 300, name
    words = view.page.locator("#summary").inner_text()
    assert "task 4 and 45 more" in words
    assert "T…T" in words
    models = view.page.get_by_role("region", name="Models", exact=True)
    assert tasks[-1] in models.inner_text()


@pytest.mark.deep
def test_a_table_that_goes_on_has_a_shadow_at_its_edge(opened, written):
    """At the lower edge until the end is reached, then at the upper one; none in a short table."""
    models = [f"M{number}" for number in range(60)]
    rows = [row for model in models for row in grid(f"{model}-B", model, "B")]
    view = opened(written(rows), view="runs")

    def edges(name):
        box = view.page.get_by_role("region", name=name, exact=True)
        pixels = np.median(imread(io.BytesIO(box.screenshot()), format="png")[..., 0], axis=1)
        return pixels[1] < 0.7, pixels[-2] < 0.7

    assert edges("Models") == (False, True)
    table = view.page.get_by_role("region", name="Models", exact=True)
    table.evaluate("(box) => box.scrollTo(0, box.scrollHeight)")
    view.settle()
    assert edges("Models") == (True, False)
    assert edges("Grids") == (False, False)


def test_dark_is_dark_and_light_is_light(opened, small):
    """The ground, and a label on it that is drawn on the canvas."""
    brightness = {}
    view = opened(small)
    for dark in (False, True):
        view.page.emulate_media(color_scheme="dark" if dark else "light")
        view.again()
        ground = view.page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness[dark] = sum(int(part) for part in ground[4:-1].split(",")) / 3
        found = view.canvas().evaluate("""(canvas) => {
          const { data } = canvas.getContext("2d").getImageData(0, 0, 60, canvas.height);
          let most = 0, sum = 0;
          for (let at = 0; at < data.length; at += 4) {
            if (data[at + 3] > 200 && data[at + 3] > most) {
              most = data[at + 3];
              sum = (data[at] + data[at + 1] + data[at + 2]) / 3;
            }
          }
          return sum;
        }""")
        assert (found > 128) is dark
    assert brightness[True] < 40
    assert brightness[False] > 215


def test_print_is_black_on_white_without_controls(opened, studies):
    view = opened(studies, dark=True, **STATES["grids"])
    view.page.emulate_media(media="print", color_scheme="dark")
    view.page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    view.settle()
    style = view.page.evaluate(
        "() => { const { color, backgroundColor } = getComputedStyle(document.body); "
        "return [color, backgroundColor]; }"
    )
    assert style == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
    assert not any(button.is_visible() for button in view.page.get_by_role("button").all())
    assert view.canvas().is_visible()
    assert view.page.get_by_role("heading", name="FT[1], layer 3").is_visible()
    assert view.page.pdf()[:4] == b"%PDF"


def test_the_keyboard_reaches_everything(opened, studies):
    """From the top of the page, Tab and Enter alone open a layer."""
    view = opened(studies, a=WHOLE)
    view.page.evaluate("() => document.body.focus()")
    seen = []
    for _ in range(60):
        view.page.keyboard.press("Tab")
        name = view.page.evaluate(
            "() => (document.activeElement.labels?.[0]?.firstChild?.textContent || "
            "document.activeElement.ariaLabel || document.activeElement.textContent).slice(0, 30)"
        )
        seen.append(name)
        if view.page.evaluate("document.activeElement.tagName") == "CANVAS":
            break
    assert {"Grids", "Curves", "What was run", "Order", "Colour range", "Measure"} <= set(seen)
    view.press("ArrowUp", "ArrowRight", "Enter")
    layer = view.page.locator(".layer")
    assert layer.is_visible()
    for _ in range(20):
        view.page.keyboard.press("Tab")
        if view.page.evaluate("document.activeElement.textContent") == "Close":
            break
    view.press("Enter")
    assert not layer.is_visible()


def test_screen_readers_have_a_table(opened, small, large):
    """Of all cells of a small grid, of the row of the cursor of a large one."""
    rows = grid("A-B", "A", "B")
    view = opened(small)
    cells = view.panel().locator("td:not(:empty)").all_inner_texts()
    names = ("layer 3", "layer 2", "layer 1", "embeddings")  # as in the picture
    assert view.panel().locator("tbody th").all_inner_texts() == [f"A, {name}" for name in names]
    shown = [row.value for at in (3, 2, 1, 0) for row in rows if row.layer_x == at]
    assert [float(cell) for cell in cells] == pytest.approx(shown, abs=6e-4)
    view = opened(large)
    view.canvas().focus()
    view.press("ArrowUp", "ArrowUp")
    assert view.panel().locator("tbody th").all_inner_texts() == ["M0, layer 2"]
    assert view.panel().locator("td:not(:empty)").count() == 60
    assert "60 rows, 60 columns" in view.canvas().get_attribute("aria-label")


def test_the_page_may_not_reach_the_network(opened, small):
    """Whatever a script in it would try."""
    view = opened(small)
    tried = view.page.evaluate("""async () => {
      const found = [];
      addEventListener("securitypolicyviolation", (event) => found.push(event.violatedDirective));
      await fetch("https://example.org/").catch(() => {});
      const image = new Image();
      image.src = "https://example.org/image.png";
      const script = document.createElement("script");
      script.textContent = "window.broken = true";
      document.body.append(script);
      await new Promise((done) => setTimeout(done, 100));
      return [found.map((name) => name.split("-")[0]).sort(), window.broken ?? false];
    }""")
    assert tried == [["connect", "img", "script"], False]
    assert view.failures == dict.fromkeys(view.requests, "csp")
    assert all("Content Security Policy" in words for words in view.complaints)
    view.requests.clear()
    view.complaints.clear()


@pytest.mark.deep
def test_forced_colours_can_be_read(opened, studies):
    """Labels on the canvas have the colour of text; the view that is shown is marked."""
    view = opened(studies, a=WHOLE)
    view.page.emulate_media(forced_colors="active")
    view.again()
    borders = view.page.locator("nav[aria-label=Views] a").evaluate_all("""(all) => all.map((a) =>
      [a.hasAttribute("aria-current"), getComputedStyle(a).borderBottomColor])""")
    ground = view.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert [colour != ground for _, colour in borders] == [current for current, _ in borders]
    columns, _ = view.edges()
    labels = {(x, y): (x, y) for x in range(0, int(columns[0]) - 25, 2) for y in range(0, 200, 2)}
    ink = view.page.evaluate("getComputedStyle(document.body).color")
    darkest = min(view.colours("Grid A", labels).values(), key=sum)
    assert ink == "rgb(0, 0, 0)"
    assert sum(darkest) < 120
