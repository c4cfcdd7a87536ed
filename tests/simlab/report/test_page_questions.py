"""The page answers the questions of a sweep: block structure, significance, facts of a copy."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from matplotlib import colormaps

from simlab.report.write import write_report
from simlab.results.results import BLOCK_SCORE, BLOCKS, FT, ORIG, to_frame, write_results
from support.lab.result_rows import grid, tuned

SEEDS = range(1, 11)
TUNED = {"base_x": "bert", "base_y": "bert", "stage_x": FT}


def with_pvalues(seed, pvalue):
    return [replace(r, pvalue=pvalue(r.layer_x, r.layer_y, seed)) for r in tuned(seed)]


def alone(seed):
    """Return a model with itself whose layers 2 and 3 are a block in 7 of the 10 seeds."""
    name, both = f"FT[{seed}]", {**TUNED, "stage_y": FT}
    rows = grid("FT-FT", name, name, seed, (seed, seed), **both)
    first = rows[0]
    layers = (2, 3) if seed <= 7 else (1, 2)
    return rows + [
        replace(first, experiment=BLOCKS, comparison=None, layer_x=layer, layer_y=None, value=1.0)
        for layer in layers
    ]


@pytest.mark.deep
def test_buttons_of_blocks_are_in_order_and_wrap_beside_their_name(opened, written):
    spans = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (0, 3)]
    rows = []
    for seed, (first, last) in enumerate(spans, 1):
        own = [row for row in alone(seed) if row.experiment != BLOCKS]
        rows += own + [
            replace(own[0], experiment=BLOCKS, comparison=None, layer_x=layer, layer_y=None,
                    value=1.0)
            for layer in range(first, last + 1)
        ]  # fmt: skip
    line = opened(written(rows), view="").page.locator(".blocks")
    buttons = line.locator("button")
    assert buttons.all_inner_texts() == [
        f"layers {first} to {last}: 1 of 6 seeds" for first, last in sorted(spans)
    ]
    name = line.locator(".name").bounding_box()
    boxes = [button.bounding_box() for button in buttons.all()]
    assert len({box["y"] for box in boxes}) > 1
    assert all(box["x"] >= name["x"] + name["width"] for box in boxes)


def test_block_structure_is_counted_over_seeds_and_says_its_p_values(opened, written):
    """Two of ten seeds are significant; the model before fine-tuning has one block, no test."""
    rows = [row for seed in SEEDS for row in alone(seed)]
    whole = {"experiment": BLOCK_SCORE, "comparison": None, "layer_x": None, "layer_y": None}
    rows += [
        replace(alone(seed)[0], **whole, value=0.4, pvalue=0.03 if seed < 3 else seed / 20)
        for seed in SEEDS
    ]
    stages = {"base_x": "bert", "base_y": "bert", "stage_x": ORIG, "stage_y": ORIG}
    base = grid("ORIG-ORIG", "BASE", "BASE", 0, **stages)
    blocks = {"experiment": BLOCKS, "comparison": None, "layer_y": None}
    rows += base + [
        replace(base[0], **blocks, layer_x=layer, value=float(of))
        for layer, of in ((0, 1), (1, 2), (2, 2), (3, 3))
    ]
    view = opened(written(rows), view="")
    lines = {
        line.locator(".name").inner_text(): line for line in view.page.locator(".blocks").all()
    }
    tuned, before = (
        next(line for name, line in lines.items() if of in name) for of in ("FT", "BASE")
    )
    words = "block score: p ≤ .05 in 2 of 10 seeds (.030 to .500)"
    assert tuned.inner_text().endswith(words)
    assert tuned.locator("button").all_inner_texts() == [
        "layers 1 to 2: 3 of 10 seeds",
        "layers 2 to 3: 7 of 10 seeds",
    ]
    assert before.locator("button").all_inner_texts() == ["layers 1 to 2"]
    assert before.inner_text().endswith("not tested")
    tuned.get_by_role("button", name="layers 2 to 3").click()
    view.settle()
    assert view.heading().startswith("FT[1–10] × FT[1–10]")
    assert "2 to 3: 7 of 10 seeds" in view.scale()
    assert words in view.scale()
    view.choose("Grid", "FT-FT: FT[1] × FT[1]")
    assert "block score: p = .030" in view.scale()


def dotted(view):
    """Return the cells with a dot in their upper right corner, which is near the right edge."""
    columns, rows = view.edges()
    places = {
        (row, column, x, y): (columns[column + 1] - x, rows[row] + y)
        for row in range(4)
        for column in range(4)
        for x in range(3, 20, 2)
        for y in range(3, 20, 2)
    }
    seen = {}
    for (row, column, *_), colour in view.colours("Grid A", places).items():
        seen.setdefault((row, column), set()).add(colour)
    return {place for place, colours in seen.items() if len(colours) > 1}


def test_cells_that_are_not_significant_have_a_dot(opened, written):
    view = opened(written(with_pvalues(1, lambda i, j, seed: 0.2 if i == 2 or j == 3 else 0.01)))
    wanted = {(i, j) for i in range(4) for j in range(4) if i == 2 or j == 3}
    assert dotted(view) == wanted
    assert "\np > .05\n" in view.scale()


def test_significance_over_seeds_is_a_plane_and_marks_the_mean(opened, written):
    """Layer 3 against layer 0 is significant in as many seeds as are planted."""

    def planted(i, j, seed):
        return 0.01 if (i, j) != (3, 0) or seed <= 4 else 0.5

    view = opened(written([row for seed in SEEDS for row in with_pvalues(seed, planted)]))
    assert dotted(view) == {(3, 0)}
    assert "half of the seeds" in view.scale()
    lines = view.copied()
    counts = {(int(r["layer_x"]), int(r["layer_y"])): float(r["significant"]) for r in lines}
    assert counts == {(i, j): 4 if (i, j) == (3, 0) else 10 for i in range(4) for j in range(4)}
    facts = ("task", "kind", "measure", "n", "seeds")
    assert {tuple(line[name] for name in facts) for line in lines} == {
        ("rt", "cls", "linear CKA (biased)", "9", "10")
    }
    assert all(line["mean"] == str(np.float32(line["mean"])) for line in lines)
    view.choose(view.field("Show"), "significant")
    assert "number of seeds with p ≤ .05" in view.heading()


@pytest.mark.parametrize(
    "least", [0.025, *(pytest.param(p, marks=pytest.mark.deep) for p in (0.015, 0.03))]
)
def test_a_p_value_of_five_percent_is_significant(opened, written, least):
    """In 16 bits, .05 is stored as a number that may be larger."""
    values = {0: least, 1: 0.9, 2: 0.0502}
    view = opened(written(with_pvalues(1, lambda i, j, seed: values.get(i, 0.05))))
    assert dotted(view) == {(i, j) for i in (1, 2) for j in range(4)}


def test_seeds_without_a_p_value_do_not_count_as_not_significant(opened, written):
    def planted(i, j, seed):
        return 0.01 if i != j and (seed <= 4 or i != 3) else np.nan

    view = opened(written([row for seed in SEEDS for row in with_pvalues(seed, planted)]))
    assert dotted(view) == set()
    counts = {(int(r["layer_x"]), int(r["layer_y"])): r["significant"] for r in view.copied()}
    assert counts == {(i, j): "" if i == j or i == 3 else "10" for i in range(4) for j in range(4)}


@pytest.mark.parametrize(
    "spread", [1e-4, *(pytest.param(share, marks=pytest.mark.deep) for share in (0.0, 0.5))]
)
def test_a_copied_value_has_the_digits_that_are_stored(opened, written, spread):
    rows = [replace(row, value=0.9 + spread * row.value / 10) for row in grid("A-B", "A", "B")]
    found = {
        (int(r["layer_x"]), int(r["layer_y"])): r["value"] for r in opened(written(rows)).copied()
    }
    for row in rows:
        assert abs(float(found[row.layer_x, row.layer_y]) - row.value) <= spread / 65534 + 1e-7


def test_all_tasks_and_all_models_stand_side_by_side(opened, written):
    """Every task is a column and every pair of models a row; a click opens the one clicked."""
    tasks, bases = ("rte", "mrpc", "sst2"), ("bert", "albert")
    planted = {
        (task, base): 0.3 + 0.1 * number
        for number, (base, task) in enumerate(product(bases, tasks))
    }
    rows = [
        replace(row, task=task, label_x=f"{base}-FT[{seed}]", label_y=base, base_x=base,
                base_y=base, value=value + 0.01 * (seed - 2))
        for (task, base), value in planted.items()
        for seed in (1, 2, 3)
        for row in tuned(seed)
    ]  # fmt: skip
    view = opened(written(rows), view="")
    table = view.page.locator(".multiples")
    heads = table.locator("thead th").all_inner_texts()
    assert sorted(heads[1:]) == sorted(tasks)
    lines = {row.locator("th").inner_text(): row for row in table.locator("tbody tr").all()}
    assert sorted(lines) == [f"{base}-FT[1–3] × {base}" for base in sorted(bases)]
    low, high = 0.0, 1.0  # the range of CKA
    first = """(canvas) => [...canvas.getContext("2d").getImageData(0, 0, 1, 1).data.slice(0, 3)]"""
    for base, task in product(bases, tasks):
        cell = lines[f"{base}-FT[1–3] × {base}"].locator("td").nth(heads.index(task) - 1)
        share = (planted[task, base] - low) / (high - low)
        wanted = np.round(np.array(colormaps["viridis"](share))[:3] * 255)
        assert np.abs(np.array(cell.locator("canvas").evaluate(first)) - wanted).max() < 8
    lines["albert-FT[1–3] × albert"].locator("td").nth(heads.index("mrpc") - 1).locator(
        "button"
    ).click()
    view.settle()
    assert view.heading().startswith("albert-FT[1–3] × albert, 3 seeds")
    assert view.choice("Task").input_value() == "mrpc"
    view.canvas().focus()
    view.press("ArrowUp")
    assert f"mean {planted['mrpc', 'albert']:.3f}"[6:] in view.readout()


def test_findings_of_all_results_stand_in_the_first_view(opened, tmp_path):
    """Of two without a measure in common; tasks have their full names in the header alone."""
    files = [tmp_path / "first.parquet", tmp_path / "second.parquet"]
    extras = {"task": "rt"}, {"task": "stsb", "measure": "svcca"}
    for file, extra in zip(files, extras, strict=True):
        rows = [row for seed in (1, 2, 3) for row in tuned(seed, **extra)]
        write_results(to_frame(rows), file)
    view = opened(write_report(files, tmp_path / "page.html"), view="")
    facts = view.page.locator(".fact")
    starts = [words.split(",")[0] for words in facts.all_inner_texts()]
    assert starts == ["first: On rt", "second: On stsb"]
    assert facts.last.bounding_box()["y"] < 400
    before = facts.all_inner_texts()
    facts.get_by_role("button", name="Show second").click()
    view.settle()
    after = facts.all_inner_texts()
    assert [words.removesuffix(" Show") for words in after] == [
        words.removesuffix(" Show") for words in before[::-1]
    ]
    measure = view.page.get_by_role("combobox", name="Measure of all pictures")
    assert measure.locator("option:checked").inner_text() == "SVCCA, cls: second"
    assert "tasks rt (Rotten Tomatoes), stsb ·" in view.page.locator("#summary").inner_text()
    assert view.page.locator("body").inner_text().count("Rotten Tomatoes") == 1
    alone = opened(write_report(files[:1], tmp_path / "alone.html"), view="")
    assert alone.page.locator(".fact").first.inner_text().startswith("On rt, ")
