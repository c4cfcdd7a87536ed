"""Grids that differ in seeds alone, as one grid: its planes, and which grids are a group."""

import csv
import io

import numpy as np
import pandas as pd
import pytest

from simlab.results.results import FT, ORIG, to_frame
from support.lab.result_rows import grid, joint_grid

TUNED = {"base_x": "minilm", "stage_x": FT, "base_y": "minilm"}
KEYS = ["layer_x", "layer_y"]


def tuned(seed, other=None, **extra):
    """Return the rows of a fine-tuned model against the base (`other` is None) or another seed."""
    y = "ORIG" if other is None else f"FT[{other}]"
    name = "FT-ORIG" if other is None else "FT-FT" if other == seed else f"FT[{seed}]-FT[{other}]"
    stage = ORIG if other is None else FT
    draw = 100 * seed + (other or 0)
    return grid(name, f"FT[{seed}]", y, draw, (seed, other), **TUNED, stage_y=stage, **extra)


def copied(view):
    view.panel().get_by_role("button", name="Copy as CSV").click()
    view.said("Copied.")
    text = view.page.evaluate("navigator.clipboard.readText()")
    return pd.DataFrame(list(csv.DictReader(io.StringIO(text)))).astype(
        {"layer_x": int, "layer_y": int}
    )


def require_equal(view, rows):
    """Check the grid that is shown against pandas."""
    shown = copied(view).set_index(KEYS).sort_index()
    groups = to_frame(rows).groupby(KEYS)["value"]
    wanted = groups.agg(["mean", "std", "min", "max", "count"]).sort_index()
    for name, column in zip(("mean", "sd", "lowest", "highest", "number"), wanted, strict=True):
        assert shown[name].replace("", "nan").astype(float).to_numpy() == pytest.approx(
            wanted[column].to_numpy(float), abs=5e-5, nan_ok=True
        ), name


@pytest.fixture
def groups():
    """Return rows of three groups: within, between seeds, and against the base."""
    seeds = (1, 2, 3)
    return {
        "FT[1–3] × ORIG, 3 seeds": [row for seed in seeds for row in tuned(seed)],
        "FT[1–3] × FT[1–3] (each with itself), 3 seeds": [
            row for seed in seeds for row in tuned(seed, seed)
        ],
        "FT[1–3] × FT[1–3] (between seeds), 3 pairs": [
            row for pair in ((1, 2), (1, 3), (2, 3)) for row in tuned(*pair)
        ],
    }


def test_seeds_are_one_grid_with_the_values_of_pandas(opened, written, groups):
    view = opened(written([row for rows in groups.values() for row in rows]))
    names = view.choice("Grid").locator("option").all_inner_texts()
    assert names[:3] == list(groups)
    for name, rows in groups.items():
        view.choice("Grid").select_option(name)
        view.settle()
        require_equal(view, rows)


def test_groups_do_not_mix_layers_rows_or_undefined_values(opened, written):
    few = [row for row in tuned(3) if row.layer_x < 3 and row.layer_y < 3]
    more = tuned(4, n=1200)
    rows = [*tuned(1), *tuned(2), *few, *more]
    for row in rows:
        if row.layer_x == 0 and row.seed_x == 1:
            object.__setattr__(row, "value", float("nan"))
    view = opened(written(rows))
    names = view.choice("Grid").locator("option").all_inner_texts()
    assert [name for name in names if "seeds" in name] == ["FT[1–4] × ORIG, 2 seeds"]
    require_equal(view, [row for row in rows if row.seed_x < 3 and row.n == 9])
    view.canvas().focus()
    view.press("PageDown", "Home")
    assert "SD undefined" in view.readout()
    assert " in 1 seed;" in view.readout()


def test_two_comparisons_of_the_same_models_are_no_seeds(opened, written):
    """Their names differ in a number, as those of seeds do."""
    runs = {number: grid(f"run {number}", "FT[1]", "ORIG", number, (1, None), **TUNED, stage_y=ORIG)
            for number in (1, 2)}  # fmt: skip
    view = opened(written([row for rows in runs.values() for row in rows]))
    names = view.choice("Grid").locator("option").all_inner_texts()
    assert len(names) == 2
    assert not any("seeds" in name for name in names)


def test_seeds_within_a_joint_grid_are_one_grid(opened, written):
    rows = [
        row.__class__(**{**vars(row), "seed_x": int(row.label_x[3]), "seed_y": int(row.label_y[3]),
                         "base_x": "b", "base_y": "b", "stage_x": FT, "stage_y": FT})
        for row in joint_grid(["FT[1]", "FT[2]", "FT[3]"])
    ]  # fmt: skip
    view = opened(written(rows))
    within = "FT[1–3] × FT[1–3] (each with itself), 3 seeds"
    view.choice("Grid").select_option(within)
    view.settle()
    require_equal(view, [row for row in rows if row.label_x == row.label_y])


def test_every_plane_can_be_shown(opened, written, groups):
    rows = [row for part in groups.values() for row in part]
    for row in rows:
        for name, shift in (("low", -0.1), ("high", 0.2)):
            object.__setattr__(row, name, row.value + shift)
        object.__setattr__(row, "pvalue", row.layer_x / 10)
    view = opened(written(rows))
    show = view.page.get_by_role("combobox", name="Show", exact=True)
    deviation = np.std([r.value for r in rows if r.label_y == "ORIG" and r.layer_x == r.layer_y == 1], ddof=1)  # fmt: skip  # noqa: E501
    show.select_option("sd")
    view.settle()
    cells = view.panel().locator("tbody tr").nth(2).locator("td").all_inner_texts()
    assert float(cells[1]) == pytest.approx(deviation, abs=6e-4)
    assert "standard deviation over seeds" in view.panel().locator("h2").inner_text()
    view.choice("Grid").select_option("FT-ORIG: FT[1] × ORIG")
    view.settle()
    for plane, value in (("width", 0.3), ("pvalue", 0.2)):
        show.select_option(plane)
        view.settle()
        cells = view.panel().locator("tbody tr").nth(1).locator("td").all_inner_texts()
        assert float(cells[1]) == pytest.approx(value, abs=6e-4)
        assert f"show={plane}" in view.page.url
