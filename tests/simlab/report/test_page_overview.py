"""The first view answers the questions of a sweep: what changes, where, and which seed deviates."""

import re
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from simlab.report.write import write_report
from simlab.results.results import BASELINE, FT, GRID, MAJORITY, ORIG, TRUNCATION, ResultRow, Side

STUDY = Path(__file__).parents[3] / "examples" / "studies" / "results" / "phang2021-offline.parquet"
SEEDS, LAYERS, ODD = range(1, 11), 5, {("rte", 3), ("rte", 7)}


def planted(seed, other, task, measure="cka"):
    """Return a grid of which layer 4 changes on rte alone, and whose odd seeds are shifted."""
    draw = np.random.default_rng([seed, other or 0, len(task)])
    x = Side(f"FT[{seed}]", seed, "bert", FT)
    y = (
        Side("BASE", None, "bert", ORIG)
        if other is None
        else Side(f"FT[{other}]", other, "bert", FT)
    )
    shift = 0.2 if (task, seed) in ODD and other in (None, seed) else 0.0
    return [
        ResultRow(
            experiment=GRID, comparison="FT-BASE" if other is None else "FT-FT", measure=measure,
            **x.columns(), **y.columns("y"), layer_x=i, layer_y=j, n=500, task=task, kind="cls",
            estimator="biased", kernel="linear",
            value=(0.2 if i == j == 4 and task == "rte" and other is None else 0.9)
            - shift * (i != j) - 0.05 * abs(i - j) + draw.normal(0, 0.005),
        )
        for i, j in product(range(LAYERS), repeat=2)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def page(written):
    return written(
        [
            row
            for task in ("rte", "sst2")
            for seed in SEEDS
            for other in (None, seed)
            for row in planted(seed, other, task)
        ]
    )


def test_the_first_view_shows_all_tasks_and_a_click_opens_one(opened, page):
    view = opened(page, view="")
    table = view.page.locator(".multiples")
    assert table.locator("thead th").all_inner_texts() == ["pair", "rte", "sst2"]
    assert table.locator("tbody th").first.inner_text() == "FT[1–10] × BASE"
    assert table.locator("canvas").count() == 4
    # One pixel a cell, layer 0 at the bottom: layer 4 of rte alone is dark.
    dark = """(canvas) => [...canvas.getContext("2d").getImageData(4, 0, 1, 1).data]"""
    rte, sst2 = (table.locator("canvas").nth(at).evaluate(dark) for at in (0, 1))
    assert sum(sst2[:3]) > sum(rte[:3]) + 100
    table.locator("button").nth(1).click()
    view.settle()
    assert view.heading() == "FT[1–10] × BASE, 10 seeds: mean over seeds"
    assert view.choice("Task").input_value() == "sst2"
    # A fine-tuned model is another one on each task.
    view.go(view="runs")
    assert view.page.locator("#summary").inner_text().startswith("21 models · tasks rte, sst2")
    models = view.page.get_by_role("region", name="Models", exact=True)
    lines = models.locator("tbody tr").all_inner_texts()
    assert lines[0] == "FT[1]\t1\trte, sst2"
    assert len(lines) == 11


@pytest.mark.deep
def test_ticks_of_changes_are_equal_steps_as_they_are_written(opened, written):
    """A quarter of .93 is .2325, whose multiples are no equal steps in two digits."""
    rows = [replace(row, value=0.07) for row in planted(1, None, "rte")]
    view = opened(written(rows), view="")
    ticks = view.page.locator(".curve svg text[text-anchor=end]").all_text_contents()
    steps = {round(float(b) - float(a), 6) for a, b in pairwise(ticks)}
    assert len(ticks) > 2
    assert len(steps) == 1, ticks


def test_the_layer_that_changes_is_said_and_drawn(opened, page):
    """Nothing is planted on sst2; the seeds that are named are those of "Do seeds agree?"."""
    view = opened(page, view="")
    facts = view.page.locator(".fact").all_inner_texts()
    assert facts[0].startswith("On rte, fine-tuning changes layer 4 most (.80")
    assert "SD .00" in facts[0]
    assert "over 10 seeds" in facts[0]
    assert facts[0].endswith("; seeds that deviate: FT[3] and FT[7]."), facts
    assert facts[1].startswith("On sst2, no layer changes more than the next by 2 standard errors")
    assert facts[1].endswith("over 10 seeds); no seed deviates.")
    table = view.page.locator(".multiples").bounding_box()
    chart = view.page.locator(".curve").first.bounding_box()
    assert chart["x"] > table["x"] + table["width"]
    assert chart["y"] < 500
    assert view.page.locator("svg path.seed").count() == 20
    view.page.get_by_text("Values", exact=True).click()
    diagonal = [
        1 - row.value
        for seed in SEEDS
        for row in planted(seed, None, "rte")
        if row.layer_x == row.layer_y == 4
    ]
    line = view.page.locator("#view-overview tbody tr", has_text="rte").filter(
        has_text=f"{np.mean(diagonal):.3f}"[1:]
    )
    line.wait_for()
    cells = line.locator("td").all_inner_texts()
    assert cells[1:] == [
        "4", f"{np.mean(diagonal):.3f}"[1:], f"{np.std(diagonal, ddof=1):.3f}"[1:], "10",
    ]  # fmt: skip


@pytest.mark.deep
def test_sentences_name_the_models_of_a_task_that_has_several(opened, written):
    """The three of the largest range of changes stand first, the rest behind a click."""
    rows = [
        replace(row, label_x=f"{name}-FT[{seed}]", label_y=name, base_x=name, base_y=name,
                n=400 + at, value=row.value - at / 10 * (row.layer_x == 2))
        for at, name in enumerate(["albert", "bart", "convbert", "deberta"])
        for seed in (1, 2)
        for row in planted(seed, None, "sst2")
    ]  # fmt: skip
    view = opened(written(rows), view="")
    facts = view.page.locator(".fact")
    assert [fact.is_visible() for fact in facts.all()] == [True] * 3 + [False]
    assert facts.first.inner_text().startswith(
        "On sst2 (deberta-FT[1–2] × deberta), fine-tuning changes layer 2 most (.40"
    )
    view.page.get_by_text("1 more", exact=True).click()
    assert facts.last.inner_text().startswith("On sst2 (albert-FT[1–2] × albert)")


@pytest.mark.deep
@pytest.mark.parametrize("base", ["bert", "other", None])
def test_only_a_model_and_its_own_base_are_before_and_after_fine_tuning(opened, written, base):
    rows = [replace(row, base_y=base) for seed in (1, 2) for row in planted(seed, None, "rte")]
    view = opened(written(rows), view="")
    (fact,) = view.page.locator(".fact").all_inner_texts()
    assert ("fine-tuning changes" in fact) == (base == "bert")
    assert ("the models differ most at" in fact) == (base != "bert")
    assert view.page.get_by_role("heading", name="Difference by layer").count() == (base != "bert")


def test_deviating_seeds_are_named_and_open_their_difference(opened, page):
    """Their lines share a scale with numbers, and dots say their names to keys and fingers."""
    view = opened(page, view="")
    require_scale(view)
    require_names(view.page.locator(".strip").first, view)
    lines = view.page.locator(".seeds")
    assert lines.count() == 4
    odd = view.page.locator(".seeds button").all_inner_texts()
    assert sorted({name.split()[0] for name in odd}) == ["FT[3]", "FT[7]"]
    assert len(odd) == 4  # against the base, and within
    assert "no seed deviates: at most" in lines.filter(has_text="sst2").first.inner_text()
    view.page.locator(".seeds button", has_text="FT[3]").first.click()
    view.settle()
    titles = [view.heading(name) for name in ("Grid A", "Grid B")]
    assert "FT[3] × BASE" in titles[0]
    assert titles[1].startswith("B: FT[1–10] × BASE, 10 seeds")
    assert view.panel("Difference").is_visible()


def require_scale(view):
    strips = view.page.locator(".strip")
    assert len({strip.bounding_box()["x"] for strip in strips.all()}) == 1
    ends, strip = view.page.locator(".ends"), strips.first
    zero, unit, most = ends.locator("span").all_inner_texts()
    assert (zero, unit) == ("0", "distance")
    labels = [label.inner_text().split()[1] for label in view.page.locator(".strip b").all()]
    assert most == max(labels, key=float)
    assert abs(ends.bounding_box()["x"] - strip.bounding_box()["x"]) < 1
    assert ends.bounding_box()["width"] == strip.bounding_box()["width"]
    words = view.page.locator("#view-overview .scale").inner_text()
    assert "Rows are layers of the first model, upwards from the embeddings" in words


def require_names(strip, view):
    name = strip.locator("b")
    assert name.inner_text().split()[0] in ("FT[3]", "FT[7]")  # the outermost
    outermost, dot = name.bounding_box(), strip.locator("i").last.bounding_box()
    assert abs(outermost["x"] + outermost["width"] - dot["x"] - dot["width"]) < 2
    strip.focus()
    view.press("Home")
    seen = [name.inner_text()]
    for _ in range(9):
        view.press("ArrowRight")
        seen.append(name.inner_text())
    assert {one.split()[0] for one in seen} == {f"FT[{seed}]" for seed in SEEDS}
    assert strip.get_attribute("aria-valuetext") == seen[-1] != seen[0]
    nearest = strip.locator("i").first.bounding_box()
    strip.dispatch_event("pointerdown", {"clientX": nearest["x"] + 4, "clientY": nearest["y"]})
    assert name.inner_text() == seen[0]


def local(seed, fall=0.0, size=13):
    """A grid of `size` layers of a seed and its base, lower by `fall` in layers 3 to 5."""
    draw = np.random.default_rng(seed)
    x, y = Side(f"FT[{seed}]", seed, "bert", FT), Side("BASE", None, "bert", ORIG)
    fixed = {"experiment": GRID, "comparison": "FT-BASE", "measure": "cka", "kind": "cls", "n": 500}
    sides = {**x.columns(), **y.columns("y")}
    return [
        ResultRow(
            **fixed, **sides, task="rte", estimator="biased", kernel="linear", layer_x=i, layer_y=j,
            value=0.8 - 0.02 * abs(i - j) - fall * (3 <= i <= 5) + draw.normal(0, 0.012),
        )
        for i in range(size) for j in range(size)
    ]  # fmt: skip


def test_a_seed_that_deviates_in_some_layers_is_named_with_them(opened, written):
    """Six times the noise in three of thirteen layers is no more than three times over all."""
    rows = {seed: local(seed, 0.072 * (seed == 4)) for seed in range(1, 6)}
    view = opened(written([row for one in rows.values() for row in one]), view="")
    line = view.page.locator(".seeds").first.inner_text()
    values = np.array([[row.value for row in one] for one in rows.values()])
    far = [
        np.sqrt(((v - np.delete(values, i, 0).mean(0)) ** 2).mean()) for i, v in enumerate(values)
    ]
    others = np.delete(values, 3, 0)
    usual = np.median(
        [np.sqrt(((v - np.delete(others, i, 0).mean(0)) ** 2).mean()) for i, v in enumerate(others)]
    )
    assert far[3] < 3 * usual
    times = f"{far[3]:.3f}, {far[3] / usual:.1f} times the others’ {usual:.3f}".replace("0.", ".")
    assert f"deviate: FT[4] (layers 3 to 5) {times}" in line.replace("\n", " ")
    fact = view.page.locator(".fact").first
    assert fact.inner_text().endswith("; seeds that deviate: FT[4] (layers 3 to 5).")
    fact.get_by_role("button").click()
    view.settle()
    assert "the others of" in view.heading("Difference")
    copied = view.copied("Difference")
    at = {(int(one["layer_x"]), int(one["layer_y"])): float(one["value"]) for one in copied}
    want = (values[3] - np.delete(values, 3, 0).mean(0)).reshape(13, 13)
    assert [at[i, j] for i in range(13) for j in range(13)] == pytest.approx(
        want.ravel().tolist(), abs=2e-4
    )


def test_two_seeds_differ_most_somewhere_and_truncated_models_have_a_sentence(opened, written):
    rows = [row for seed in (1, 2) for row in local(seed, 0.3 * (seed == 2))]
    cut = [
        ResultRow(
            experiment=TRUNCATION, measure="accuracy", label_x="FT[1]", seed_x=1, base_x="bert",
            stage_x=FT, layer_x=layer, value=value, task="rte", n=500,
        )
        for layer, value in ((12, 0.81), (11, 0.74), (10, 0.51), (9, 0.5), (8, 0.5))
    ]  # fmt: skip
    cut += [replace(row, label_x="FT[2]", seed_x=2, value=row.value - 0.02) for row in cut]
    simple = ResultRow(
        experiment=BASELINE, measure="accuracy", label_x=MAJORITY, value=0.53, task="rte", n=500
    )
    cut += [simple, replace(simple, n=400, value=0.6)]
    view = opened(written(rows + cut), view="")
    (fact,) = view.page.locator(".fact").all_inner_texts()
    assert re.search(r"; the two seeds differ most at layer [345] \(\.\d+ and \.\d+\)\.$", fact)
    left = "On rte, {} with its own head: accuracy {} with all layers, {} without the last layer, "
    left += "{} without the last 2 layers, {} without the last 3 layers; majority class: .530."
    sentence = view.page.locator(".cut")
    means = (".800", ".730", ".500", ".490")
    assert sentence.inner_text() == left.format("FT[1–2] (mean of 2 seeds)", *means)
    view.go(view="", find="seed:2")
    assert sentence.inner_text() == left.format("FT[2]", ".790", ".720", ".490", ".480")


def test_a_block_that_was_clicked_is_framed_alone(opened, studies):
    """The legend counts its seeds and names them; a button frames all blocks again."""
    view = opened(studies, view="")
    require_figures(view)
    line = view.page.locator(".blocks").filter(has_text="FT").first
    button = line.get_by_role("button").last
    span, count = re.match(r"layers (.*): (\d+) of", button.inner_text()).groups()
    others = line.get_by_role("button").count() - 1
    assert others
    button.click()
    view.settle()
    scale = view.panel().locator(".scale")
    words = scale.inner_text()
    assert f"block of layers {span}: {count} of" in words
    named = re.search(r"\((.*?)\)", words.split("block of layers")[1])[1]
    assert len(named.split(", ")) == int(count)
    assert re.search(f"{others} other blocks? (is|are) not framed", words)
    view.again()  # a link holds it
    assert scale.inner_text() == words
    scale.get_by_role("button", name="Frame all").click()
    view.settle()
    assert "blocks of layers (" in scale.inner_text()
    scale.get_by_role("button", name=f"Frame layers {span} alone").click()
    view.settle()
    assert scale.inner_text() == words


def require_figures(view):
    """Check that figures stand side by side, and that a joint grid is shown once."""
    drawings = view.page.locator("#view-overview .beside > .charts svg[role=img]")
    for _ in range(2):  # values that are open below one of them do not push the other one down
        one, other = (drawings.nth(at).bounding_box() for at in (0, 1))
        assert one["x"] < other["x"]
        assert one["y"] == pytest.approx(other["y"], abs=1)
        view.page.locator("#view-overview .charts summary").first.click()
    pairs = view.page.locator(".multiples th[scope=row]").all_inner_texts()
    assert [pair for pair in pairs if "all of" in pair] == ["ORIG + FT: all of 2 models"]


@pytest.mark.deep
def test_a_failed_seed_cannot_hide_among_five(opened, tmp_path):
    """Seed 4 of the study failed on stsb; it is in the mean from which the other seeds are far.

    A pair of grids, and of a part of a joint grid, is shown once.
    """
    view = opened(write_report(STUDY, tmp_path / "page.html"), view="")
    pairs = view.page.locator(".multiples tbody th").all_inner_texts()
    assert sum("ORIG" in pair and "FT[1–5]" in pair for pair in pairs) == 1
    for row in view.page.locator(".multiples tbody tr").all():
        assert row.locator("canvas").count() == 2, row.inner_text()  # one for each task
    lines = view.page.locator(".seeds:not(.blocks)")
    odd = {
        line.locator(".name").inner_text(): line.locator("button").all_inner_texts()
        for line in lines.all()
        if "ORIG" in line.inner_text()
    }
    named = {name: [seed.split()[0] for seed in seeds] for name, seeds in odd.items()}
    assert sorted(named.values()) == [[], ["minilm-FT[4]"]]
    assert all("stsb" in name for name, seeds in named.items() if seeds)
    # One sentence on scores for each task.
    sentences = view.page.locator(".cut")
    shown = [one.inner_text() for one in sentences.all() if one.is_visible()]
    assert [one.split(",")[0] for one in shown] == ["On rt", "On stsb"]
    view.page.get_by_text("7 more on scores without layers").click()
    assert [one.is_visible() for one in sentences.all()] == [True] * 9


@pytest.mark.deep
def test_what_is_opened_from_below_is_shown_from_its_top(opened, page):
    view = opened(page)
    for width, what in product((390, 1280), (".seeds button", ".thumb")):
        view.page.set_viewport_size({"width": width, "height": 800})
        view.go(view="")
        view.page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        view.page.locator(what).last.evaluate("(button) => button.click()")
        view.settle()
        for part in (view.panel().locator("h2"), view.canvas()):
            assert 0 <= part.bounding_box()["y"] < 700, view.page.evaluate("scrollY")


@pytest.mark.deep
def test_the_first_view_fits_and_has_no_violation(opened, page, violations):
    view = opened(page, view="")
    for width in (360, 1080, 1280):
        view.page.emulate_media(color_scheme="dark" if width == 1080 else "light")
        view.page.set_viewport_size({"width": width, "height": 800})
        view.again()
        assert view.width() <= width
        assert violations(view) == []


@pytest.mark.deep
def test_a_block_says_in_how_many_seeds_it_is(opened, studies):
    view = opened(studies)
    name = "FT[1–3] × FT[1–3] (each with itself), 3 seeds"
    words = []
    for one in (one for one in view.grids() if one.startswith(name)):
        view.choose("Grid", one)
        words.append(view.scale())
    named = [pair for text in words for pair in re.findall(r"(\d) to (\d): \d of 3 seeds", text)]
    assert named
    assert all(first < last for first, last in named)  # a layer alone is no block


@pytest.mark.deep
def test_the_first_grid_is_before_and_after_fine_tuning(opened, written):
    """Not a model with itself, though that stands first in the results."""
    rows = [row for other in (1, None) for row in planted(1, other, "rte")]
    view = opened(written(rows))
    assert view.grids()[0].startswith("FT-FT")
    assert view.heading() == "FT-BASE: FT[1] × BASE"
