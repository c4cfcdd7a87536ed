"""The page of `simcore judge`: what it says, what a browser shows, and hostile names."""

import numpy as np
import pytest

from simlab.judge.figure import draw
from simlab.judge.ranks import ranked
from simlab.judge.scores import RANKED, SPEARMAN
from simlab.judge.tables import DEPENDENCES
from simlab.judge.write import _fact, _title, write_page
from support.lab.browsers import NO_BROWSER, NO_TOOLS, Opened, find_browser, started, tool

HOSTILE = '<img src=x onerror="alert(1)">.py'
SIDEWAYS = "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"
VIOLATIONS = "() => axe.run().then(({ violations }) => violations.map(({ id }) => id))"


def rows(measure, value, domain="digits", **fields):
    """Return the rows of a measure that has one value in every test."""
    numbers = {"low": value - 0.1, "high": value + 0.1, "pvalue": 0.01, "undefined": 0, "pairs": 90}
    scores = [*RANKED.items(), *DEPENDENCES]
    chance = {SPEARMAN: 0.0}
    return [
        {
            "domain": domain,
            "measure": measure,
            "test": test,
            "score": score,
            "value": value,
            "chance": chance.get(score, 0.2),
            **numbers,
            **fields,
        }
        for test, score in scores
    ]


def table(name="mine.py", domains=("digits", "reviews")):
    """Return a file between two measures of simcore; small violation rates turn its place there."""
    made = []
    for domain in domains:
        for measure, value in ((name, 0.5), ("cka", 0.7), ("knn-mutual", 0.3)):
            made += rows(measure, value, domain)
    return ranked(made, {name})


@pytest.fixture
def shown(tmp_path):
    """Return a function that opens the page of a table in Chromium."""
    if not find_browser():
        pytest.skip(f"the page is not tested: {NO_BROWSER}")
    with started() as browser:
        pages = []

        def show(frame, width=1400, dark=False):
            write_page(frame, tmp_path / "judge.html")
            options = {"viewport": {"width": width, "height": 900}}
            scheme = "dark" if dark else "light"
            pages.append(Opened(browser, tmp_path / "judge.html", color_scheme=scheme, **options))
            pages[-1].page.goto((tmp_path / "judge.html").as_uri())
            return pages[-1]

        yield show
        assert all((page.requests, page.complaints) == ([], []) for page in pages)


def drawn(view, measure, test):
    """Return the attributes of the parts of a cell: circle, interval, chance."""
    row = (
        view.page.locator("section")
        .first.locator("table")
        .first.locator("tr")
        .filter(has=view.page.locator("th", has_text=measure))
    )
    cell = row.locator("td").nth(1 + list(RANKED).index(test))
    parts = {"circle": ("cx",), "line:not(.chance)": ("x1", "x2"), "line.chance": ("x1",)}
    return {
        part: [float(cell.locator(part).get_attribute(name)) for name in names]
        for part, names in parts.items()
        if cell.locator(part).count()
    }, cell.inner_text().split()


def test_the_first_sentence_says_where_a_measure_stands(shown):
    facts = shown(table()).page.locator(".fact").all_inner_texts()
    assert len(facts) == 2
    assert facts[0] == (
        "digits: mine.py has place 2 of 3 (mean rank 2.0). It has rank 2 in every test."
    )


def fact_of(change):
    """Return the sentences on a measure whose ranks in two tests are changed by `change`."""
    frame = table(domains=("digits",))
    change(frame, frame["measure"] == "mine.py")
    return _fact(frame, "mine.py")


def test_the_best_test_is_one_that_is_told_from_chance():
    def change(frame, own):
        frame.loc[own & (frame["test"] == "accuracy"), ["rank", "pvalue"]] = 1, 0.05
        frame.loc[own & (frame["test"] == "layers"), "rank"] = 1.5
        frame.loc[own & (frame["test"] == "shortcut"), ["rank", "pvalue"]] = 3, 0.4

    assert fact_of(change).endswith(
        " Where it is told from chance, it is best in layers (rank 1.5), worst in disagreement "
        "(rank 2). Not told from chance (p of 0.05 or more): accuracy and shortcut."
    )


def test_one_test_is_not_the_best_and_the_worst():
    def change(frame, own):
        frame.loc[own & (frame["test"] != "layers"), "pvalue"] = 0.4

    assert " Where it is told from chance, it has rank 2 in layers. Not told" in fact_of(change)


def test_a_measure_that_is_undefined_everywhere_is_said_to_be_so():
    made = rows("cka", 0.7) + rows("mine.py", np.nan, undefined=90, pvalue=np.nan)
    assert _fact(ranked(made, {"mine.py"}), "mine.py") == (
        "mine.py has place 2 of 2 (mean rank 2.0). Undefined in every test."
    )


@pytest.mark.parametrize(
    ("asked", "title"),
    [
        (["a"], "Where a stands"),
        (["a", "b"], "Where a and b stand"),
        (["a", "b", "c"], "Where a, b and c stand"),
    ],
)
def test_the_title_names_all_measures(asked, title):
    assert _title(asked) == title


def test_tests_that_say_nothing_are_named(shown):
    frame = table(domains=("digits",))
    chance = (frame["test"] == "shortcut") & (frame["measure"] == "mine.py")
    frame.loc[chance, "pvalue"] = 0.4
    [fact] = shown(frame).page.locator(".fact").all_inner_texts()
    assert fact.endswith("Not told from chance (p of 0.05 or more): shortcut.")


def test_a_cell_is_drawn_where_its_numbers_are(shown):
    view = shown(table())
    parts, words = drawn(view, "cka", "shortcut")  # .7 [.6, .8] of 0 to 1, chance .2
    assert parts == {"circle": [42.0], "line:not(.chance)": [36.0, 48.0], "line.chance": [12.0]}
    assert words == ["1", "0.70"]
    parts, _ = drawn(view, "cka", "accuracy")  # a correlation is drawn from -1 to 1
    assert parts["circle"] == [51.0]
    assert parts["line.chance"] == [30.0]


def test_a_rank_does_not_touch_a_mark_at_the_left_end(shown):
    made = [row for number in range(12) for row in rows(f"a{number}", 0.0, low=0.0, high=0.0)]
    cell = shown(ranked(made, set())).page.locator("td .cell").nth(list(RANKED).index("layers"))
    assert cell.inner_text().split()[0] == "6.5"
    rank, mark = (cell.locator(part).bounding_box() for part in (".rank", "circle"))
    assert rank["x"] + rank["width"] + 2 < mark["x"]


def test_drawings_have_a_scale(shown):
    view = shown(table())
    ends = view.page.locator("section").first.locator(".ends")
    assert [one.split() for one in ends.all_inner_texts()] == [
        ["−1" if score == SPEARMAN else "0", "1"] for score in RANKED.values()
    ]
    drawing = view.page.locator("section").first.locator("td svg").first.bounding_box()
    scale = ends.first.bounding_box()
    assert (scale["x"], scale["width"]) == pytest.approx((drawing["x"], drawing["width"]), abs=1)


def test_a_name_is_not_broken_inside_a_word(shown):
    view = shown(table("my_measure.py"), width=420)
    own, other = (
        view.page.locator("section").first.locator("th", has_text=name).first.bounding_box()
        for name in ("my_measure.py", "cka")
    )
    assert own["height"] == other["height"]


def test_the_figure_says_where_low_scores_are_good(tmp_path, monkeypatch):
    labels = []
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig",
        lambda figure, path, **_: labels.extend(axis.get_xlabel() for axis in figure.axes),
    )
    with pytest.raises(FileNotFoundError):  # nothing was saved
        draw(table(domains=("digits",)), tmp_path / "digits.png")
    assert labels == [
        "violation rate\nlow is good" if test == "layers" else score
        for test, score in RANKED.items()
    ]


def test_an_undefined_score_has_no_mark_and_ranks_last(shown):
    made = rows("cka", 0.7) + rows("mine.py", np.nan, undefined=90, pvalue=np.nan)
    view = shown(ranked(made, {"mine.py"}))
    parts, words = drawn(view, "mine.py", "shortcut")
    assert parts == {"line.chance": [12.0]}
    assert words == ["2", "-"]
    title = view.page.locator("tr.own title").nth(4).text_content()
    assert title == "AUPRC -, 90 of 90 values undefined"


def test_an_interval_beyond_the_range_ends_at_its_border(shown):
    made = rows("mine.py", 0.95, high=1.3)
    parts, _ = drawn(shown(ranked(made, {"mine.py"})), "mine.py", "shortcut")
    assert parts["line:not(.chance)"] == [51.0, 60.0]


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_has_no_violation_and_does_not_move_sideways(shown, width, dark):
    axe = tool("axe-core/axe.min.js")
    if not axe:
        pytest.skip(f"axe is not run: {NO_TOOLS}")
    view = shown(table(), width, dark)
    assert not view.page.evaluate(SIDEWAYS)
    view.page.locator("summary").first.click()
    # The policy lets no script in: the tool enters as a debugger does.
    view.page.evaluate(axe.read_text())
    assert view.page.evaluate(VIOLATIONS) == []


def test_a_hostile_name_is_text(shown):
    view = shown(table(HOSTILE))
    assert view.page.locator("img").count() == 0
    assert 'onerror="alert(1)"' in view.page.locator("h1").inner_text()


def test_measures_of_simcore_alone_have_no_sentence(shown):
    frame = ranked(rows("cka", 0.7) + rows("rsa", 0.6), set())
    view = shown(frame)
    assert view.page.locator("h1").inner_text() == "Measures of similarity, judged"
    assert view.page.locator(".fact").count() == 0
    assert view.page.locator("tr.own").count() == 0


def test_every_score_of_the_measure_that_was_asked_for_is_in_a_table(shown):
    view = shown(table(domains=("digits",)))
    made = view.page.get_by_role("region", name="Every score of mine.py: digits")
    names = made.locator("tbody th").all_inner_texts()
    assert names == [f"{test}: {score}" for test, score in [*RANKED.items(), *DEPENDENCES]]
    assert made.locator("tbody tr").nth(4).locator("td").all_inner_texts() == [
        "0.50",
        "0.40 to 0.60",
        "0.20",
        "0.0100",
        "2 of 3",
        "",
    ]
    details = view.page.locator("details")
    details.locator("summary").click()
    assert details.locator("tbody tr").count() == 3


def test_a_score_of_one_domain_is_not_shown_in_another(shown):
    made = rows("mine.py", 0.5, "digits") + rows("mine.py", 0.9, "reviews")
    view = shown(ranked(made, {"mine.py"}))
    names = view.page.locator("section h2").all_inner_texts()
    assert names == ["digits", "reviews", "Mean ranks over all domains"]
    scores = view.page.locator("section").nth(1).locator("td .cell span:last-child")
    assert set(scores.all_inner_texts()) == {"0.90"}
