"""Joint grids that can be read: strips of colour, trees of clusterings, seeds collapsed."""

import re
from itertools import combinations, product

import numpy as np
import pytest

from simlab.results.results import FT, JOINT, ORIG, ResultRow, Side

SEEDS, LAYERS = (1, 2, 3), 4
MODELS = [(stem, seed) for stem in ("ORIG", "FT") for seed in SEEDS]
PLACES = list(product(MODELS, range(LAYERS)))


def side(model):
    stem, seed = model
    return Side(f"{stem}[{seed}]", seed, "bert", ORIG if stem == "ORIG" else FT)


@pytest.fixture(scope="module")
def values():
    """The upper layers of all models are one cluster, and their lower layers the other one."""
    draw = np.random.default_rng(0)
    high = np.array([layer >= LAYERS // 2 for _, layer in PLACES])
    table = np.where(high[:, None] == high, 0.8, 0.2) + draw.uniform(0, 0.1, (len(PLACES),) * 2)
    table = (table + table.T) / 2
    np.fill_diagonal(table, 1.0)
    return table


def rows_of(values, pvalue=lambda layer: np.nan):
    return [
        ResultRow(
            experiment=JOINT, comparison="all", measure="cka", estimator="biased",
            kernel="linear", kind="cls", task="rt", n=500, value=float(values[row, column]),
            **side(x).columns(), **side(y).columns("y"), layer_x=i, layer_y=j, pvalue=pvalue(i),
        )
        for row, (x, i) in enumerate(PLACES)
        for column, (y, j) in enumerate(PLACES)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def page(written, values):
    return written(rows_of(values))


def opened_whole(opened, page, **state):
    view = opened(page, **state)
    view.choose("Grid", "all: all of 6 models")
    return view


@pytest.mark.parametrize("order", ["clustered", pytest.param("layer", marks=pytest.mark.deep)])
def test_strips_say_model_seed_and_layer_of_both_sides(opened, page, order):
    view = opened_whole(opened, page, order=order)
    columns, rows = view.edges()
    names = view.panel().locator("tbody th").all_inner_texts()[::-1]
    facts = [re.match(r"(\w+)\[(\d)\], (.*)", name).groups() for name in names]
    bottom = max(rows)
    places = {
        (side, at, fact): (columns[0] - away, rows[at] + 3) if side == "down"
        else (columns[at] + 3, bottom + away - 1)
        for side in ("down", "across") for at in range(len(names))
        for fact, away in enumerate((18, 11, 4))
    }  # fmt: skip
    seen = view.colours("Grid A", places)
    for side_, fact in product(("down", "across"), range(3)):
        for one, other in combinations(range(len(names)), 2):
            same = facts[one][fact] == facts[other][fact]
            alike = seen[side_, one, fact] == seen[side_, other, fact]
            assert same == alike, (side_, fact, facts[one], facts[other])
    words = view.scale()
    assert "Strips, from outside: model, seed, layer" in words
    assert "ORIG[1–3]" in words


def brackets(text, across):
    """Return each join of a tree: its height and the middles of its two branches, in pixels."""
    lines = [list(map(float, p.split())) for p in re.findall(r'<polyline points="([^"]*)"', text)]
    lines = [line for line in lines if (line[0] == line[2]) == across]
    along, high = (0, 1) if across else (1, 0)
    return [(line[2 + high], line[along], line[4 + along]) for line in lines]


@pytest.mark.parametrize(
    ("words", "count"), [("", 24), pytest.param("-model:orig[2]", 20, marks=pytest.mark.deep)]
)
def test_only_a_clustering_has_a_tree_which_is_on_both_sides(opened, page, words, count):
    """The last join is that of the two clusters, also where models are filtered out."""
    view = opened_whole(opened, page, order="clustered", find=words)
    names = view.panel().locator("tbody th").all_inner_texts()[::-1]
    assert len(names) == count
    is_high = [name.endswith(("layer 2", "layer 3")) for name in names]
    assert is_high == [False] * (count // 2) + [True] * (count // 2)
    text = view.saved("Save as SVG")[1].decode()
    cell = float(re.search(r'<rect [^>]*width="(\d+)" height="\1"[^>]*><title>', text).group(1))
    for across, last in ((True, min), (False, max)):  # the farthest from the cells
        joins = brackets(text, across)
        assert len(joins) == count - 1
        _, one, other = last(joins)
        assert max(one, other) > cell * count / 2 > min(one, other)
    view.choose(view.field("Order"), "by model")
    assert b"<polyline" not in view.saved("Save as SVG")[1]


@pytest.mark.parametrize("symmetric", [pytest.param(True, marks=pytest.mark.deep), False])
def test_seeds_are_collapsed(opened, written, values, symmetric):
    """Each model with itself and with the same seed of the other one: 24 layers are 8.

    The lower layers of all seeds are significant, and the upper layers of none.
    """
    if not symmetric:
        values = values - np.linspace(0, 0.2, len(values))
    view = opened(written(rows_of(values, lambda layer: 0.01 if layer < LAYERS // 2 else 0.5)))
    view.choose("Grid", "all: all of 2 models, 3 seeds")
    lines = view.copied()
    assert len(lines) == (2 * LAYERS) ** 2
    number = {place: at for at, place in enumerate(PLACES)}
    for line in lines:
        x, y = (line[f"label_{s}"].split("[")[0] for s in "xy")
        i, j = int(line["layer_x"]), int(line["layer_y"])
        cells = [values[number[(x, seed), i], number[(y, seed), j]] for seed in SEEDS]
        assert float(line["mean"]) == pytest.approx(np.mean(cells), abs=1e-4)
        assert float(line["sd"]) == pytest.approx(np.std(cells, ddof=1), abs=1e-4)
        assert line["number"] == "3"
        if len({layer < LAYERS // 2 for layer in (i, j)}) == 1:
            assert line["significant"] == ("3" if max(i, j) < LAYERS // 2 else "0"), line
    assert view.field("Show").input_value() == "mean"


@pytest.mark.parametrize("alone", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_a_deviating_seed_of_a_joint_grid_opens_and_is_named_soundly(
    opened, written, values, alone
):
    """FT[3] deviates from ORIG[3], and with `alone` in itself: only then FT[3] is to blame."""
    number = [at for at, (model, _) in enumerate(PLACES) if model == ("FT", 3)]
    other = [at for at, (model, _) in enumerate(PLACES) if model == ("ORIG", 3)]
    table = values.copy()
    for rows, columns in ((number, other), (other, number), *([(number, number)] * alone)):
        table[np.ix_(rows, columns)] -= 0.4
    view = opened(written(rows_of(table)), view="")
    lines = view.page.locator(".seeds")
    pair = lines.filter(has_text="same seed")
    named = pair.get_by_role("button").all_inner_texts()
    assert [name.split(" .")[0] for name in named] == ["FT[3]" if alone else "seed 3"]
    assert "ORIG[3]" not in " ".join(view.page.locator(".fact").all_inner_texts())
    own = lines.filter(has_text="FT[1–3] × FT[1–3]").get_by_role("button")
    assert own.count() == alone
    pair.get_by_role("button").click()
    view.settle()
    titles = [view.heading(name) for name in ("Grid A", "Grid B")]
    assert "FT[3]" in titles[0]
    assert "ORIG[3]" in titles[0]
    assert "3 seeds" in titles[1]
    view.again()  # a link finds the seed that was cut out
    assert view.heading() == titles[0]
    cells = view.copied()
    place = {at: number for number, at in enumerate(PLACES)}
    assert len(cells) == LAYERS**2
    for cell in cells:
        row, column = (
            place[(stem, int(seed)), int(cell[f"layer_{side_}"])]
            for side_ in "xy"
            for stem, seed in re.findall(r"(\w+)\[(\d)\]", cell[f"label_{side_}"])
        )
        assert float(cell["value"]) == pytest.approx(table[row, column], abs=1e-4)


@pytest.mark.deep
def test_a_clustered_joint_grid_fits_and_has_no_violation(opened, page, violations):
    view = opened(page, order="clustered")
    for width in (360, 1280):
        view.page.set_viewport_size({"width": width, "height": 800})
        view.again()
        assert view.width() <= width
        assert violations(view) == []


@pytest.mark.deep
def test_a_grid_that_could_not_be_unpacked_is_unpacked_at_the_next_look(opened, page):
    view = opened(page)
    view.page.add_init_script("""
        const Kept = DecompressionStream;
        window.isBroken = true;
        window.DecompressionStream = class extends Kept {
          constructor(format) {
            if (window.isBroken) throw new Error("planted");
            super(format);
          }
        };
    """)
    view.again()
    assert "planted" in view.page.locator("body").inner_text()
    assert any("planted" in words for words in view.complaints)
    view.complaints.clear()
    view.page.evaluate("window.isBroken = false; dispatchEvent(new Event('hashchange'))")
    view.settle()
    assert "planted" not in view.page.locator("body").inner_text()
    assert view.panel().locator("tbody th").count() > 0
