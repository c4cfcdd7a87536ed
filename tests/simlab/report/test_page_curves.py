"""Curves over layers: change, scores, and the cursor that they share; curves over steps."""

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from simlab.results.results import BLOCK_INFLUENCE, FT, INFLUENCE, LOCALIZATION, ResultRow, Side
from support.lab.result_rows import ONE_BASE, STEPS, grid, steps_of_training, tuned

LAYERS = 4
SEEDS = (1, 2, 3)


def score(layer, seed):
    """Return a score whose highest layer is 2, and whose spread is largest at layer 3."""
    return 0.1 * layer + (0.4 if layer == 2 else 0.0) + 0.02 * seed * (1 + 4 * (layer == 3))


def scores(seed, work, task="rt"):
    """Return the localization of every layer, or the influence of every block."""
    model = Side(f"FT[{seed}]", seed, "bert", FT).columns()
    first = int(work == INFLUENCE)
    return [
        ResultRow(
            experiment=work,
            measure=BLOCK_INFLUENCE if work == INFLUENCE else LOCALIZATION,
            kind=None if work == INFLUENCE else "cls",
            layer_x=layer - first,
            layer_y=layer if work == INFLUENCE else None,
            value=score(layer, seed),
            task=task,
            n=9,
            **model,
        )
        for layer in range(first, LAYERS)
    ]


def changed(seed):
    """Return a grid before and after fine-tuning, which changes layer 3."""
    return [
        replace(row, value=0.3 + 0.01 * seed if row.layer_x == row.layer_y == 3 else 0.9)
        for row in tuned(seed)
    ]


@pytest.fixture(scope="module")
def page(written):
    rows = [row for seed in SEEDS for row in changed(seed)]
    rows += [row for seed in SEEDS for work in (LOCALIZATION, INFLUENCE)
             for row in scores(seed, work)]  # fmt: skip
    return written([*rows, *scores(1, LOCALIZATION, task="other")])


def charts(view, place):
    """Return the figures of curves by their names, with what their legends say."""
    found = {}
    for chart in view.page.locator(f"{place} .curve").all():
        name = chart.locator("svg[role=img]").get_attribute("aria-label")
        values = chart.locator(".legend .value").all_inner_texts()
        found[name] = (chart.locator(".pointed").inner_text(), [value.strip() for value in values])
    return found


def words(values):
    mean, spread = np.mean(values), np.std(values, ddof=1)
    return f"{mean:.3f} (SD {spread:.3f})".replace("0.", ".")


def point(chart, share):
    """Move the mouse over a figure, at a share of its width."""
    chart.scroll_into_view_if_needed()
    box = chart.locator("svg[role=img]").bounding_box()
    chart.page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)


def test_scores_and_changes_stand_beside_the_grid_and_follow_its_cursor(opened, page):
    view = opened(page)
    assert view.heading().startswith("FT[1–3] × BASE, 3 seeds")
    for row in (2, 3):
        view.canvas().focus()
        view.press("PageDown", *["ArrowUp"] * row)
        assert view.readout().startswith(f"FT[1–3], layer {row} ×")
        scored = words([score(row, seed) for seed in SEEDS])
        changed = words([1 - (0.3 + 0.01 * seed if row == 3 else 0.9) for seed in SEEDS])
        assert charts(view, "#view-grids") == {
            "Change by layer, 1 − linear CKA (biased)": (f"layer {row}", [changed]),
            "rt: localization, cls, n = 9": (f"layer {row}", [scored]),
            "rt: block-influence, n = 9": (f"layer {row}", [scored]),
        }
    box, chart = view.canvas().bounding_box(), view.page.locator("#view-grids .curve").first
    assert chart.bounding_box()["x"] >= box["x"] + box["width"]
    point(view.page.locator("#view-grids .curve").nth(1), 0.68)
    assert view.readout().startswith("FT[1–3], layer 2 × BASE, layer 2: mean .900")
    assert all(at == "layer 2" for at, _ in charts(view, "#view-grids").values())


def test_curves_of_the_overview_share_a_layer_with_the_grid(opened, page):
    view = opened(page)
    view.canvas().focus()
    view.press("PageDown", "ArrowUp")
    view.page.get_by_role("link", name="Overview").click()
    view.settle()
    found = charts(view, "#view-overview")
    assert len(found) == 4
    assert {at for at, _ in found.values()} == {"layer 1"}
    first, second = (view.page.locator("#view-overview .curve").nth(at) for at in (0, 1))
    assert second.bounding_box()["x"] > first.bounding_box()["x"] + 300  # beside each other
    point(second, 0.98)
    found = charts(view, "#view-overview")
    assert {at for at, _ in found.values()} == {"layer 3"}
    assert found["other: localization, cls, n = 9"][1] == [f"{score(3, 1):.3f}"[1:]]


@pytest.mark.deep
def test_scores_are_curves_on_a_page_without_grids(opened, written):
    rows = [row for seed in SEEDS for work in (LOCALIZATION, INFLUENCE)
            for row in scores(seed, work)]  # fmt: skip
    view = opened(written(rows), view="")
    point(view.page.locator("#view-overview .curve").first, 0.68)
    wanted = ("layer 2", [words([score(2, seed) for seed in SEEDS])])
    assert charts(view, "#view-overview") == {
        "rt: localization, cls, n = 9": wanted,
        "rt: block-influence, n = 9": wanted,
    }


@pytest.mark.deep
def test_a_model_has_one_colour_in_the_panels_of_all_layers(opened, written):
    rows = [row for pair in (("A", "B"), ("A", "C"), ("B", "C"))
            for row in grid("-".join(pair), *pair, **ONE_BASE)]  # fmt: skip
    file = written(rows)
    seen = {}
    for model in "ABC":
        view = opened(
            file,
            layer=f"a~{model}~1",
            a=f"rt~cls~linear CKA (biased)~{'A-C' if model != 'B' else 'A-B'}~9",
        )
        for entry in view.page.locator(".layer .legend li").all():
            name = entry.inner_text().split()[0]
            seen.setdefault(name, set()).add(entry.locator("line").get_attribute("stroke"))
    assert sorted(seen) == ["A", "B", "C"]
    assert all(len(colours) == 1 for colours in seen.values()), seen
    assert len({min(colours) for colours in seen.values()}) == 3


def test_the_curves_of_a_layer_are_read_out_and_saved(opened, written):
    """As SVG, and as PNG of twice its size: with a title, and a line for the other model."""
    view = opened(written(grid("A-B", "A", "B")), layer="a~A~2")
    point(view.page.locator(".layer .curve"), 0.98)
    ((at, [value]),) = charts(view, ".layer").values()
    assert at == "layer 3"
    [wanted] = [r.value for r in grid("A-B", "A", "B") if (r.layer_x, r.layer_y) == (2, 3)]
    assert value == f"{wanted:.3f}"[1:]
    layer, name = view.page.locator(".layer"), "A-layer-2-linear-CKA-biased-with-every-layer"
    saved = {kind: view.saved(f"Save as {kind}", layer) for kind in ("SVG", "PNG")}
    assert [one for one, _ in saved.values()] == [f"{name}.svg", f"{name}.png"]
    png, text = saved["PNG"][1], saved["SVG"][1].decode()
    width, height = (int.from_bytes(png[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == (920, 2 * (250 + 2 * 18))
    assert "layer of the other model" in text
    assert 'class="rule"' in text
    assert "mark" not in text
    for words in ("A, layer 2, linear CKA (biased) with every layer", ">B<"):
        assert words in text  # the title, and the legend


@pytest.mark.deep
def test_lines_can_be_seen_on_both_grounds(opened, page):
    """3:1, as the guidelines for pictures ask for."""

    def brightness(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    view = opened(page, view="")
    for scheme in ("light", "dark"):
        view.page.emulate_media(color_scheme=scheme)
        view.again()
        ground = view.page.evaluate(
            "getComputedStyle(document.body).getPropertyValue('--raised').trim()"
        )
        lines = view.page.evaluate(LINES)
        assert len(lines) == 6
        for line in lines:
            low, high = sorted((brightness(line), brightness(ground)))
            assert (high + 0.05) / (low + 0.05) >= 3, (line, ground)


LINES = r"""() => document.querySelector("script[type=module]").textContent
  .match(/\["#0072b2"[^\]]*\]/)[0].match(/#[0-9a-f]{6}/g)"""


@pytest.mark.deep
@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            (1, 1, 0.75, 1),
            "most at layer 2 (.250) and least at the embeddings, layer 1 and layer 3 (.000).",
        ),
        ((1, 1, 1, 1), "differ at all 4 layers alike (.000)."),
    ],
)
def test_layers_that_differ_alike_are_named_together(opened, written, values, words):
    rows = [replace(row, value=float(values[row.layer_x])) for row in grid("A-B", "A", "B")]
    (fact,) = opened(written(rows), view="").page.locator(".fact").all_inner_texts()
    assert fact.endswith(words)


@pytest.fixture(scope="module")
def trained(written):
    return written(steps_of_training())


def test_every_layer_is_a_curve_over_steps(opened, trained):
    """The last number below it is whole; the step that all are compared with has a number."""
    rows = steps_of_training()
    view = opened(trained, view="")
    facts = view.page.locator(".fact").all_inner_texts()
    assert any("layer 3 last, from step 1,000 on" in fact for fact in facts)
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
    found = {(int(r["layer"]), int(r["step"])): float(r["mean"]) for r in view.copied(chart)}
    assert len(found) == 4 * 5
    for (layer, step), mean in found.items():
        values = [
            row.value for row in rows
            if row.layer_x == row.layer_y == layer and row.step_x == step
        ]  # fmt: skip
        assert mean == pytest.approx(np.mean(values), abs=1e-5)
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


def test_a_slider_leads_through_the_steps_of_a_grid(opened, trained):
    view = opened(trained, view="")
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


@pytest.mark.deep
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
