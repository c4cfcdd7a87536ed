"""One filter drives all views, and a link shows the same view, whatever it says."""

import re
from dataclasses import replace

import numpy as np
import pytest

from simlab.figures.table import in_order
from simlab.results.results import FT, LOCALIZATION, ORIG
from support.lab.pages import WHOLE
from support.lab.result_rows import curve, grid, triangle

TUNED = {"base_x": "bert", "base_y": "bert", "stage_x": FT, "stage_y": ORIG}


@pytest.fixture(scope="module")
def rows():
    """Two tasks, two measures, two kinds, three seeds; curves and localization of each task."""
    found = [
        replace(row, task=task, kind=kind)
        for task, kind in (("rte", "cls"), ("sst2", "cls"), ("rte", "mean"))
        for measure in ("cka", "svcca")
        for seed in (1, 2, 3)
        for row in grid(f"FT-BASE {seed}", f"FT[{seed}]", "BASE", seed, (seed, None),
                        measure=measure, **TUNED)
    ]  # fmt: skip
    found += [replace(row, task="rte") for row in curve("FT[1]", 1)]
    found += [replace(row, task=task) for task in ("rte", "sst2") for row in triangle("FT[1]", 1)]
    return found + [
        replace(row, task=task, measure=LOCALIZATION)
        for task in ("rte", "sst2")
        for row in curve("FT[1]", 1, mode=LOCALIZATION)
    ]


@pytest.fixture(scope="module")
def page(written, rows):
    return written(rows)


def test_a_word_drives_the_overview(opened, page):
    view = opened(page, view="")
    head = view.page.locator(".multiples thead th")
    for words in ("task:rte", "rte", "-task:sst2", "task:rte,qnli"):
        assert head.all_inner_texts() == ["pair", "rte", "sst2"]
        view.find(words)
        assert head.all_inner_texts() == ["pair", "rte"], words
        assert all("sst2" not in fact for fact in view.page.locator(".fact").all_inner_texts())
        assert "sst2" not in view.page.locator("#view-overview").inner_text()
        view.again()  # a link holds the filter
        assert head.all_inner_texts() == ["pair", "rte"], words
        view.find("task:qqp")
        assert "No grid passes the filter." in view.page.locator("#view-overview").inner_text()
        view.find("")
    assert head.all_inner_texts() == ["pair", "rte", "sst2"]


def test_results_are_seen_as_one_types_and_open(opened, page):
    view = opened(page, view="")
    buttons = view.page.locator("#found button")
    assert buttons.count() == 0
    field = view.page.get_by_role("searchbox", name="Filter of all views")
    field.press_sequentially("seed:2 measure:sv")
    view.settle()
    # Of each task: the grid of all seeds, which seed 2 is one of, and the grid of seed 2.
    counts = view.page.locator("#filter [role=status]").inner_text()
    assert counts.startswith("3 of 18 grids, 3 of 6 means over seeds, 0 of 2 figures in Curves. ")
    titles = [text.split(",")[0] for text in buttons.all_inner_texts()]
    assert sorted(titles) == ["FT-BASE 2: FT[2] × BASE"] * 3 + ["FT[1–3] × BASE"] * 3
    field.press_sequentially(" sst2")
    assert buttons.first.is_visible()
    field.press("Enter")
    view.settle()
    assert not buttons.first.is_visible()
    assert view.heading().startswith("FT[1–3] × BASE")
    assert view.choice("Task").input_value() == "sst2"
    assert view.choice("Measure").input_value() == "SVCCA"
    assert view.page.evaluate("document.activeElement.type") == "search"


@pytest.mark.deep
def test_the_lists_of_grids_follow_the_filter(opened, page):
    view = opened(page, find="task:rte seed:2-3")
    assert view.choice("Task").locator("option").all_inner_texts() == ["rte"]
    assert [name.split(":")[0] for name in view.grids()[1:]] == ["FT-BASE 2", "FT-BASE 3"]
    kinds = view.choice("Representation").locator("option")
    assert kinds.all_inner_texts() == ["cls", "mean"]
    view.find("kind:cls")
    assert kinds.all_inner_texts() == ["cls"]


def test_curves_have_contents_that_follow_the_filter(opened, page):
    """One figure is shown at a time; a link holds it."""
    view = opened(page, view="curves")
    figures = view.page.locator("#view-curves figure")
    contents = view.page.get_by_role("navigation", name="Contents").get_by_role("button")

    def seen(found):
        return [one.inner_text().split("\n")[0] for one in found.all() if one.is_visible()]

    names = seen(contents)
    assert len(names) == figures.count() > 1
    assert seen(figures) == names[:1]
    view.page.get_by_role("navigation", name="Contents").get_by_text(names[-1]).click()
    view.settle()
    assert seen(figures) == names[-1:]
    view.again()
    assert seen(figures) == names[-1:]
    view.find("task:sst2")
    assert seen(contents) == seen(figures) == ["all tasks: skipping"]
    view.find("seed:7")
    assert seen(figures) == seen(contents) == []
    view.find("")
    view.page.emulate_media(media="print")
    assert len(seen(figures)) == len(names)  # paper shows all


@pytest.mark.deep
def test_scores_of_layers_and_tables_follow_the_filter(opened, page):
    """Localization is drawn by layer; models and grids that were run are rows."""
    view = opened(page, view="")
    charts = view.page.locator("#view-overview h3", has_text=LOCALIZATION)
    assert charts.count() == 2
    view.find("task:rte")
    assert charts.all_inner_texts() == [f"rte: {LOCALIZATION}, n = 9"]
    view.page.get_by_role("link", name="What was run").click()
    view.settle()
    grids = view.page.get_by_role("region", name="Grids", exact=True).locator("tbody tr")
    assert [row.locator("td").first.inner_text() for row in grids.all()] == ["rte"] * 4
    assert view.page.get_by_role("region", name="Versions that wrote this page").is_visible()


def test_models_and_seeds_that_are_filtered_out_leave_joint_grids(opened, large):
    view = opened(large)

    def models():
        names = view.panel().locator("tbody th").all_inner_texts()[::-1]
        return list(dict.fromkeys(name.split(",")[0] for name in names))

    view.find("model:m1")
    assert models() == ["M1", "M10", "M11"]
    view.find("cka")  # no word of models
    view.canvas().focus()
    view.press("PageUp")
    assert view.readout().startswith("M11, layer 4")


@pytest.mark.deep
def test_thousands_of_grids_are_found(opened, written):
    """110 models with themselves and each with the first."""
    models = in_order(f"M{number}" for number in range(110))
    found = [row for m in models for row in grid(f"{m}-{m}", m, m)[::5]]
    found += [row for m in models for row in grid("with the first", m, "M0")[:4]]
    view = opened(written(found))
    assert view.choice("Grid").locator("option").count() <= 202
    view.find("first m97")
    assert view.grids()[1:] == ["with the first: M97 × M0"]
    view.page.get_by_role("searchbox", name="Filter of all views").press("Enter")
    view.settle()
    assert view.panel().get_by_role("heading", level=2).inner_text() == "with the first: M97 × M0"


def test_a_seed_of_the_filter_is_the_seed_of_sentences_and_lines(opened, page, rows):
    """Means of grids stay as they are, and the page says so."""
    view = opened(page, view="")
    status = view.page.locator("#filter [role=status]")
    lines = view.page.locator("#view-overview svg path.seed")
    sentence = "Sentences and curves count the seeds that pass; pictures of grids"
    before = view.page.locator(".fact").all_inner_texts()
    assert all("over 3 seeds" in fact for fact in before)
    assert lines.count() == 6
    view.find("seed:2 task:rte")
    assert sentence in status.inner_text()
    one = [
        row for row in rows
        if (row.task, row.seed_x, row.kind, row.measure) == ("rte", 2, "cls", "cka")
        and row.layer_x == row.layer_y and row.label_y == "BASE"
    ]  # fmt: skip
    most = max(one, key=lambda row: 1 - row.value)
    where = f"layer {most.layer_x}" if most.layer_x else "the embeddings"
    (fact,) = view.page.locator(".fact").all_inner_texts()
    assert fact.startswith(f"On rte, fine-tuning changes {where} most ({1 - most.value:.3f}"[:-5])
    assert fact.endswith(", in one seed.")
    assert lines.count() == 0  # one line, which is no thin one
    view.find("seed:1-2 task:rte")
    assert lines.count() == 2
    view.find("task:rte")
    assert "Sentences" not in status.inner_text()
    assert lines.count() == 3


@pytest.mark.deep
def test_suggestions_name_a_pair_once_and_lie_over_the_page(opened, written):
    """The same seeds stand in the results in both orders."""
    found = [
        row
        for seed in (1, 2, 3)
        for x, y, seeds, of in (
            (f"FT[{seed}]", "BASE", (seed, None), TUNED),
            ("BASE", f"FT[{seed}]", (None, seed), {**TUNED, "stage_x": ORIG, "stage_y": FT}),
        )
        for row in grid("FT-BASE" if x != "BASE" else "BASE-FT", x, y, seed, seeds, **of)
    ]
    view = opened(written(found), 390, view="")
    view.find("base")
    titles = view.page.locator("#found button").all_inner_texts()
    assert len([title for title in titles if title.endswith("n = 9") and "3 seeds" in title]) == 1
    shown, views = view.page.locator("#found"), view.page.locator("header nav")
    assert shown.is_visible()
    before = views.bounding_box()
    view.page.get_by_role("searchbox", name="Filter of all views").blur()
    assert not shown.is_visible()
    assert views.bounding_box() == before
    assert view.width() <= 390


def test_grids_are_counted_as_the_page_counts_them_and_unknown_fields_are_named(opened, page):
    """The header counts grids of results: means over seeds are counted for themselves."""
    view = opened(page, view="")
    status = view.page.locator("#filter [role=status]")
    assert "18 grids" in view.page.locator("#summary").inner_text()
    view.find("base")
    assert status.inner_text() == (
        "18 of 18 grids, 6 of 6 means over seeds, 0 of 2 figures in Curves"
    )
    view.find("task:rte nonsense:zz")
    wanted = "“nonsense” is not a field; fields are task, model, seed, measure, kind"
    assert wanted in status.inner_text()
    for words in ("bert", "task:qqp", "-task:rte,sst2", "zz"):
        view.find(words)
        assert status.inner_text().startswith("0 of 18 grids")
        assert "field" not in status.inner_text()


def test_a_link_shows_the_same_view(opened, studies):
    view = opened(studies, a=WHOLE)
    view.choose("Representation", "word-last")
    view.choose("Measure", "SVCCA")
    for label, words in (("Order", "by layer"), ("Colour range", "fitted to the grid"),
                         ("Colours", "cividis")):  # fmt: skip
        view.choose(view.field(label), words)
    view.find("-model:ft[2]")
    view.canvas().focus()
    view.press("+", "ArrowUp", "ArrowRight", "Enter", "ArrowRight")
    view.canvas().blur()  # the words at the pointer are not in a link

    def words():
        panel = view.panel().inner_text().partition("Save as SVG")[0]  # without what is said
        return view.readout(), panel, view.page.locator(".layer").inner_text()

    before = words()
    points = {(x, y): (x * 10.0, y * 10.0) for x in range(50) for y in range(50)}
    picture = view.colours("Grid A", points)
    view.page.wait_for_timeout(400)  # until the cursor is in the address
    view.again()
    assert words() == before
    for _ in range(40):  # a busy machine draws its next frame late
        again = view.colours("Grid A", points)
        difference = np.abs(np.array([again[at] for at in points]) - list(picture.values())).mean()
        if difference < 2:
            break
        view.page.wait_for_timeout(100)
    assert difference < 2
    assert view.page.locator("#notice").is_hidden()
    view.go(a="rt~cls~no~such~1")
    assert "names a grid that this page does not have" in view.page.locator("#notice").inner_text()


@pytest.mark.deep
def test_a_link_with_a_cell_shows_no_words_at_a_pointer(opened, small):
    """Nobody points at it: the readout says the cell."""
    view = opened(small, cell="A, layer 1~B, layer 2")
    assert view.readout().startswith("A, layer 1 × B, layer 2")
    assert not view.panel().locator(".tip").is_visible()
    view.canvas().focus()
    view.press("ArrowUp")
    assert view.panel().locator(".tip").is_visible()


NONSENSE = [
    *({"colours": name} for name in ("no such", "constructor")),
    *({"zoom": zoom} for zoom in ("", "nan", "a~b~c", "1e9~0~0", "-3~1~1", "Infinity~0~0")),
    *({"layer": layer} for layer in ("a", "a~A~9", "c~A~x", "a~none~1")),
    {"order": "no such", "range": "no such", "cell": "no such", "find": "%~%"},
]


@pytest.mark.deep
def test_a_link_that_says_nonsense_shows_the_grid(opened, small):
    view = opened(small)
    for state in NONSENSE:
        view.go(**{"cell": "A, layer 1~B, layer 2", **state})
        assert view.panel().locator("tbody th").count() == 4, state
        assert view.page.locator("#notice").is_hidden(), state
        for label, value in (("Colours", "viridis"), ("Order", "model")):
            choice = view.field(label)
            assert choice.input_value() == value, state


def test_the_back_key_undoes_choices_and_not_letters(opened, small):
    view = opened(small)
    view.choose("Grid", "A-C")
    order = view.field("Order")
    order.select_option("by layer")
    view.settle()
    field = view.page.get_by_role("searchbox", name="Filter of all views")
    field.press_sequentially("cka")
    view.settle()
    view.page.go_back()
    view.settle()
    assert (order.input_value(), view.choice("Grid").input_value()) == ("model", "A-C")
    view.page.go_back()
    view.settle()
    assert view.choice("Grid").input_value() == "A-B"
    view.page.go_forward()
    view.settle()
    assert view.choice("Grid").input_value() == "A-C"


@pytest.mark.deep
def test_only_what_changed_is_drawn_anew(opened, written):
    """A layer that is opened leaves the grid as it is; a field that is used keeps the focus."""
    rows = [row for measure in ("cka", "svcca") for row in grid("A-B", "A", "B", measure=measure)]
    view = opened(written(rows), view="overview")
    field = view.page.get_by_role("combobox", name="Measure of all pictures")
    field.focus()
    view.press("ArrowDown")
    view.page.wait_for_url(re.compile("measure="))
    assert field.evaluate("(box) => box === document.activeElement")
    view.page.get_by_role("link", name="Grids").click()
    view.settle()
    parts = "[...document.querySelectorAll('#view-grids :is(option, .scale b)')]"
    mark = f"() => {parts}.forEach((part) => {{ part.kept = true; }})"
    kept = f"() => {parts}.every((part) => part.kept)"
    view.page.evaluate(mark)
    size = view.canvas().bounding_box()
    view.canvas().focus()
    view.press("ArrowUp", "Enter")
    view.page.get_by_role("region", name="Layer").wait_for()
    assert view.page.evaluate(kept)
    assert view.canvas().bounding_box() == size
    view.choose(view.field("Colours"), "grey")
    view.page.wait_for_function(f"() => !({kept})()")
    view.page.get_by_role("link", name="Overview").click()  # and back: the layer is open still
    view.settle()
    view.page.get_by_role("link", name="Grids").click()
    view.settle()
    view.page.get_by_role("region", name="Layer").wait_for()
