"""What the page shows of a table: settings, grids, axes, orders, blocks, facts."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from scipy.cluster.hierarchy import cophenet, leaves_list, linkage
from scipy.spatial.distance import pdist, squareform

from simlab.figures.table import without_copies
from simlab.report.gather import gather
from simlab.report.planes import clustered
from simlab.results.reading import read_table
from simlab.results.results import BLOCK_SCORE, BLOCKS, LOCALIZATION, SKIPPING, to_frame
from simlab.similarity.catalogue import MEASURES
from support.lab.pages import CURVES, JOINT, STUDIES, cells_of, unpack
from support.lab.result_rows import LAYERS, curve, grid, joint_grid, triangle

SIZES = (40, 7), (12, 4), (130, 5)


def gathered(rows):
    frame = rows if isinstance(rows, pd.DataFrame) else to_frame(rows)
    return gather(without_copies(read_table(frame)))


def values_of(found, grid):
    """Return the table of values of a grid, as the page makes it."""
    stored = unpack(found.text[f"plane-{grid['setting']}-value"])
    rows, columns = (sum(len(part) for _, part in found.axes[grid[side]]) for side in "xy")
    if not grid["symmetric"]:
        return stored[grid["start"] :][: rows * columns].reshape(rows, columns)
    whole = np.empty((rows, rows))
    places = np.triu_indices(rows)
    whole[places] = whole.T[places] = stored[grid["start"] :][: len(places[0])]
    return whole


def layers_of(found, axis):
    """Return the name of the model and the number of the layer along an axis."""
    parts = found.axes[axis]
    return [(found.models[model]["name"], layer) for model, layers in parts for layer in layers]


def test_settings_stand_in_the_order_of_the_catalogue():
    names = [name for name in MEASURES if name in ("cka", "svcca", "pwcca", "neuronsim", "rsa")]
    rows = [row for name in sorted(names) for row in grid("A-B", "A", "B", measure=name)]
    found = gathered(rows)
    assert [setting["measure"] for setting in found.settings] == names
    assert names != sorted(names)


def test_tasks_and_estimators_are_settings_of_their_own():
    rows = [
        *grid("A-B", "A", "B"),
        *grid("A-B", "A", "B", estimator="unbiased"),
        *grid("A-B", "A", "B", task="stsb"),
    ]
    found = gathered(rows)
    assert [(s["task"], s["name"]) for s in found.settings] == [
        ("rt", "linear CKA (biased)"),
        ("rt", "linear CKA (unbiased)"),
        ("stsb", "linear CKA (biased)"),
    ]


def test_settings_of_one_name_are_told_apart():
    """Rows of another tool need not say the usual options."""
    stored = '{"standardize": false}'
    rows = [row for text in (None, stored)
            for row in grid("A-B", "A", "B", measure="svcca", options=text)]  # fmt: skip
    found = gathered([*rows, *grid("A-B", "A", "B", measure="svcca", task="stsb", options=stored)])
    assert [(setting["task"], setting["name"]) for setting in found.settings] == [
        ("rt", "SVCCA"),
        ("rt", "SVCCA (standardize False)"),
        ("stsb", "SVCCA"),
    ]


def test_a_measure_has_one_range_of_colours_over_tasks_and_estimators():
    rows = [*grid("A-B", "A", "B"), *grid("A-B", "A", "B", task="stsb", estimator="unbiased")]
    rows[-1] = replace(rows[-1], value=-0.25)
    rows += grid("A-B", "A", "B", measure="svcca")
    far = [replace(row, value=9 * row.value) for row in grid("A-B", "A", "B", measure="distance")]
    found = gathered([*rows, *far])
    ranges = [(setting["measure"], setting["range"]) for setting in found.settings]
    highest = max(row.value for row in far)
    assert ranges == [
        ("cka", [-0.25, 1.0]),
        ("cka", [-0.25, 1.0]),
        ("svcca", [0.0, 1.0]),
        ("distance", [0.0, highest]),
    ]


def test_layers_are_in_order_whatever_the_order_of_the_rows():
    rows = grid("A-B", "A", "B")
    wanted = [row.value for row in rows]
    shuffled = [rows[place] for place in np.random.default_rng(0).permutation(len(rows))]
    found = gathered(shuffled)
    (made,) = found.grids
    assert [found.axes[made[side]] for side in "xy"] == [
        ((number, tuple(range(LAYERS))),) for number in (0, 1)
    ]
    assert values_of(found, made).ravel() == pytest.approx(np.float32(wanted))


def test_a_missing_cell_is_undefined():
    rows = grid("A-B", "A", "B")
    found = gathered([row for row in rows if (row.layer_x, row.layer_y) != (1, 2)])
    table = values_of(found, found.grids[0])
    assert np.argwhere(np.isnan(table)).tolist() == [[1, 2]]


def test_a_grid_without_a_value_is_undefined():
    rows = [replace(row, value=float("nan")) for row in grid("A-B", "A", "B")]
    found = gathered([*rows, *grid("A-C", "A", "C", measure="svcca")])
    tables = [values_of(found, made) for made in found.grids]
    assert [int(np.isnan(table).sum()) for table in tables] == [LAYERS**2, 0]


def test_joint_grids_hold_all_models_and_are_triangles_if_symmetric():
    rows = joint_grid(["M2", "M10", "M1"])
    value = {(r.label_x, r.layer_x, r.label_y, r.layer_y): r.value for r in rows}
    frame = to_frame(rows)
    frame["value"] += [
        value[key]
        for key in frame[["label_y", "layer_y", "label_x", "layer_x"]].itertuples(False, None)
    ]
    for table, symmetric in ((to_frame(rows), False), (frame, True)):
        found = gathered(table)
        (made,) = found.grids
        assert made["symmetric"] is symmetric
        assert [found.models[number]["name"] for number, _ in found.axes[made["x"]]] == [
            "M2",
            "M10",
            "M1",
        ]
        assert values_of(found, made).ravel() == pytest.approx(np.float32(table["value"]))


def test_seeds_of_a_model_have_one_name():
    rows = [row for seed in (1, 2, 3) for row in curve(f"FT[{seed}]", seed, mode=LOCALIZATION)]
    rows += curve("v1", mode=LOCALIZATION)
    stems = {model["name"]: model["stem"] for model in gathered(rows).models}
    assert stems == {"FT[1]": "FT[1–3]", "FT[2]": "FT[1–3]", "FT[3]": "FT[1–3]", "v1": "v1"}


def test_facts_of_a_layer():
    rows = [*curve("A", 1), *triangle("A", 1), *curve("A", 1, mode=LOCALIZATION)]
    rows = [row for row in rows if row.experiment != SKIPPING or row.layer_x != row.layer_y]
    facts = [fact for fact in gathered(rows).facts if fact[2] == 2]
    assert {(fact[3], round(fact[4], 3)) for fact in facts} == {
        ("accuracy, truncation-untuned", 0.7),
        ("accuracy, skipping", 0.8),  # the span from 1 to 2 skips layer 2
        ("localization", 0.7),
    }


@pytest.mark.parametrize("value", [1e155, 1e308, -1e308])
def test_a_huge_value_has_an_order(value):
    rows = grid("A-B", "A", "B")
    rows[0] = replace(rows[0], value=value)
    (found,) = gathered(rows).grids
    assert all(sorted(order) == [0, 1, 2, 3] for order in found["clustered"])


def ordered(table):
    """Return the trees of a table whose rows and columns are layers 0, 1, ..."""
    return clustered(table, *map(np.arange, table.shape))


def test_alike_layers_stand_beside_each_other():
    """Two kinds of layers take turns; clustering puts each kind together."""
    kinds = np.arange(8) % 2
    table = np.where(kinds[:, None] == kinds, 0.9, 0.1) + 0.1 * np.eye(8)
    (down,) = ordered(table)
    assert sorted(down.leaves) == list(range(8))
    assert np.abs(np.diff(kinds[down.leaves])).sum() == 1
    table[2, 4] = np.nan
    down, across = ordered(table[:, :6])
    assert (sorted(down.leaves), sorted(across.leaves)) == (list(range(8)), list(range(6)))
    assert np.abs(np.diff(kinds[down.leaves])).sum() == 1


def test_leaves_stand_in_the_order_of_scipy():
    draw = np.random.default_rng(0)
    tables = [draw.uniform(size=size) * 10.0**-scale for scale, size in enumerate(SIZES)]
    for table in tables:
        for (order, heights), rows in zip(ordered(table), (table, table.T), strict=True):
            tree = linkage(pdist(rows), "average", optimal_ordering=True)
            leaves = leaves_list(tree).tolist()
            half = len(leaves) // 2
            assert sum(order[:half]) <= sum(order[-half:])
            assert order in (leaves, leaves[::-1])
            # The highest join between two leaves is the height at which they are of one cluster.
            joined = squareform(cophenet(tree)) / pdist(rows).max()
            for first, last in combinations(range(len(order)), 2):
                high = max(heights[first:last])
                assert high == pytest.approx(joined[order[first], order[last]], abs=1e-4)


def test_grids_too_small_to_cluster_keep_their_order():
    assert ordered(np.full((2, 1), np.nan)) == [([0, 1], [0.0]), ([0], [])]


def test_clustering_begins_with_the_lower_layers():
    """Of a joint grid, whose first row may be a deep layer of the first model."""
    depth = np.tile(np.arange(4), 2)
    table = 1 - np.abs(depth[:, None] - depth) / 4
    for order in (np.arange(8), np.arange(8)[::-1]):
        (tree,) = clustered(table[np.ix_(order, order)], depth[order], depth[order])
        assert depth[order][tree.leaves].tolist() == sorted(depth)


def test_real_results_come_back():
    """Every cell of every grid of two studies, and the outlines of blocks."""
    frame = without_copies(read_table([JOINT, CURVES]))
    wanted = cells_of(frame)
    found = gather(frame)
    seen = 0
    for made in found.grids:
        setting = found.settings[made["setting"]]
        names = [setting[name] for name in ("task", "kind", "name")]
        (x, y) = (layers_of(found, made[side]) for side in "xy")
        table = values_of(found, made)
        keys = [(*names, made["comparison"], *one, *other) for one, other in product(x, y)]
        given = np.array([wanted[key][0] for key in keys])
        np.testing.assert_array_equal(table.ravel(), given.astype(np.float32))
        seen += len(keys)
    assert seen == len(wanted)


def test_blocks_are_outlined_in_grids_of_a_model_and_in_joint_grids():
    frame = without_copies(read_table([JOINT, CURVES]))
    best = frame["options"].isna()  # those of a fixed number name it
    rows = frame[(frame["experiment"] == BLOCKS) & frame["value"].notna() & best]
    clusters = rows.groupby(["estimator", "label_x", "value"])["layer_x"]
    wanted = {(*key[:2], tuple(map(int, layers))) for key, layers in clusters if len(layers) > 1}
    found = gather(frame)
    seen = {True: set(), False: set()}
    for made in found.grids:
        joint = len(found.axes[made["x"]]) > 1
        estimator = found.settings[made["setting"]]["name"].split("(")[-1].strip(")")
        seen[joint] |= {
            (estimator, found.models[model]["name"], tuple(layers))
            for model, layers in made.get("blocks", ())
        }
    assert seen[False] == wanted
    # The joint grid of the other file is biased.
    assert seen[True] == {block for block in wanted if block[0] == "biased"}


def test_p_values_of_block_scores_stand_with_their_models():
    frame = without_copies(read_table([STUDIES / "phang2021-offline.parquet"]))
    scores = frame[(frame["experiment"] == BLOCK_SCORE) & frame["options"].isna()]
    wanted = {(row.task, row.label_x, round(row.pvalue, 9)) for row in scores.itertuples()}
    found = gather(frame)
    seen = {
        (found.settings[made["setting"]]["task"], found.models[model]["name"], round(pvalue, 9))
        for made in found.grids
        for model, pvalue in made.get("tests", ())
    }
    assert len(wanted) == 12
    assert seen == wanted


def test_experiments_are_no_grids():
    found = gathered([*triangle("A", 1), *curve("A", 1)])
    assert (found.settings, found.grids) == ([], [])
