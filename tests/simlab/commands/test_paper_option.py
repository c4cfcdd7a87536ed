"""``--paper`` on commands, and ``simcore papers``."""

from dataclasses import replace

import pytest

from simlab.evidence import table
from simlab.experiments import freeze_study as freezing
from simlab.experiments import truncate as truncation
from simlab.figures import draw
from simlab.models.heads import HeadRecipe
from simlab.papers.presets import PAPERS
from simlab.representations import extract as extraction
from simlab.similarity import blocks, grids
from simlab.similarity.catalogue import OPTIONS
from simlab.steps.catalogue import STEPS
from simlab.training import finetune as training
from support.lab.commandline import check_refused
from support.lab.tinymodels import COLUMNS


class Called(Exception):
    """Raised in place of the work of a command; holds the keywords that the function got."""


@pytest.fixture
def keywords(monkeypatch, simcore):
    """Run a command up to the call of `function` in `module`, and return its arguments."""

    def run(module, function, *arguments):
        def stop(*given, **keywords):
            raise Called(given, keywords)

        for step in STEPS.values():
            assert step.parameters  # read from its function, which is replaced here
        monkeypatch.setattr(module, function, stop)
        with pytest.raises(Called) as caught:
            simcore(*arguments)
        return caught.value.args

    return run


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (
            ("--paper", "wu2020", "--measure", "svcca"),
            {"measure": "svcca", "truncation": 0.99, "standardize": True},
        ),
        (("--measure", "svcca", "--paper", "ren2023"), {"measure": "svcca", "truncation": 0.99}),
        (("--paper", "wu2020"), {"measure": "cka", "estimator": "biased", "kernel": "linear"}),
        (
            ("--paper", "wu2020", "--estimator", "both"),
            {"measure": "cka", "estimator": "both", "kernel": "linear"},
        ),
        (
            ("--paper", "wu2020", "--measure", "svcca", "--truncation", "20"),
            {"measure": "svcca", "truncation": 20, "standardize": True},
        ),
        (("--paper", "wu2020", "--measure", "neuronsim"), {"measure": "neuronsim"}),
        (
            ("--paper", "wu2020", "--measure", "mixedsim", "--top-k", "0.1"),
            {"measure": "mixedsim", "top_k": 0.1},
        ),
    ],
)
def test_what_is_typed_counts_more_than_the_paper(keywords, typed, wanted):
    _, found = keywords(grids, "grid", "grid", "x", "--out", "x.parquet", *typed)
    chosen = found.keys() & {"measure", *OPTIONS}
    assert {name: found[name] for name in chosen} == wanted


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ((), {"kind": "word-last", "words": "spaces", "split": "all", "special_tokens": False}),
        (("--kind", "cls"), {"kind": "cls", "words": None, "special_tokens": None}),
        (("--kind", "attention", "--special-tokens"), {"words": "spaces", "special_tokens": True}),
    ],
)
def test_extraction_takes_a_papers_choices(keywords, typed, wanted):
    arguments = ("extract", "minilm", "ptb.txt", "--out", "reps", "--paper", "wu2020")
    _, found = keywords(extraction, "extract", *arguments, *typed)
    assert {name: found.get(name) for name in wanted} == wanted


@pytest.mark.parametrize("paper", PAPERS)
def test_a_paper_is_its_recipe(keywords, tiny_bert, reviews, paper):
    start = ("finetune", tiny_bert.path, reviews, *COLUMNS, "--out", "ft")
    by_paper = keywords(training, "finetune", *start, "--paper", paper)
    by_recipe = keywords(training, "finetune", *start, "--recipe", paper)
    assert by_paper[1]["recipe"] == paper
    assert by_paper[1] == by_recipe[1]
    same = keywords(training, "finetune", *start, "--paper", paper, "--recipe", paper)
    assert same[1]["recipe"] == paper


def test_another_recipe_than_the_papers_is_refused_or_told(
    keywords, simcore, capfd, tiny_bert, reviews
):
    both = ("--paper", "wu2020", "--recipe", "quick")
    arguments = ("finetune", tiny_bert.path, reviews, *COLUMNS, "--out", "ft", *both)
    check_refused(simcore(*arguments), "--paper wu2020, --recipe quick", "found two")
    arguments = ("freeze-study", "minilm", "rt", "--out", "study", *both)
    _, found = keywords(freezing, "freeze_study", *arguments)
    assert (found["recipe"], found["bottom"]) == ("quick", (4, 6))
    note = "note: --recipe quick takes the place of the recipe of --paper wu2020"
    assert capfd.readouterr().err.splitlines() == [note]


@pytest.mark.parametrize(("paper", "bottom"), [("wu2020", (4, 6)), ("phang2021", None)])
def test_a_study_of_freezing_takes_recipe_and_layers(keywords, paper, bottom):
    arguments = ("freeze-study", "minilm", "rt", "--out", "study", "--paper", paper)
    _, found = keywords(freezing, "freeze_study", *arguments)
    assert found["recipe"] == paper
    assert found.get("bottom") == bottom


def test_heads_are_trained_as_the_paper_or_the_command_says(keywords, tiny_bert, reviews):
    start = ("truncate", tiny_bert.path, reviews, *COLUMNS, "--out", "x.parquet")

    def options(*arguments):
        _, found = keywords(truncation, "truncate", *start, *arguments)
        fields = [p.name for p in STEPS["truncate"].parameters if p.name.startswith("head_")]
        names = ["modes", *fields]
        given = {name: found[name] for name in names if name in found}
        return truncation.TruncationOptions().changed(given)

    given = options("--paper", "phang2021")
    assert given.modes == ("untuned", "tuned", "tuned-orig")
    wanted = HeadRecipe(1e-5, 4, 0.0, 10_000, validation_share=0.0, warmup=1_000, decay=True)
    assert given.recipe == replace(wanted, scale=False)
    typed = ("--mode", "tuned", "--head-most-steps", 7, "--head-scale", "--head-seed", 3)
    given = options("--paper", "phang2021", *typed)
    assert given.modes == ("tuned",)
    assert given.recipe == replace(wanted, most_steps=7, seed=3)
    assert options().recipe == HeadRecipe()


def test_heads_that_cannot_be_trained_are_refused(simcore):
    start = ("truncate", "ft", "rt", "--out", "x.parquet")
    for option, value, wanted in (
        ("--head-batch-size", 0, "more than 0, found 0"),
        ("--head-warmup", -1, "0 or more, found -1.0"),
        ("--head-validation-share", 1, "0 or more, and below 1, found 1.0"),
        ("--head-learning-rate", "nan", "0 or more, found nan"),
    ):
        code, _, errors = simcore(*start, option, value)
        assert (code, errors) == (2, [f"error: {option}: wanted {wanted}"])


def test_blocks_and_claims_take_a_papers_choices(keywords):
    _, found = keywords(table, "claims", "claims", "results", "--paper", "wu2020")
    assert found["metric"] == "accuracy"
    typed = ("--paper", "ren2023", "--clusters", 3)
    _, found = keywords(blocks, "blocks", "blocks", "results", *typed)
    assert found["clusters"] == 3
    _, found = keywords(blocks, "blocks", "blocks", "results", *typed[:2])
    assert found["clusters"] == 2


def test_a_paper_without_choices_for_a_command_is_refused(simcore):
    code, _, errors = simcore("truncate", "ft", "rt", "--out", "x.parquet", "--paper", "wu2020")
    assert (code, errors) == (
        2,
        [
            "error: --paper wu2020: wanted a paper that has choices for `simcore truncate` "
            "(phang2021)"
        ],
    )
    code, _, errors = simcore("grid", "x", "--out", "x.parquet", "--paper", "wu")
    assert (code, errors) == (2, ["error: --paper wu: wanted one of phang2021, wu2020, ren2023"])


def test_papers_are_printed(simcore):
    code, printed, errors = simcore("papers", "wu2020")
    assert (code, errors) == (0, [])
    lines = printed.splitlines()
    place = lines.index("grid --truncation 0.99 (measure svcca or pwcca)")
    assert lines[place + 1].startswith("    text: ")
    assert "appendix A.3" in " ".join(lines[place + 1 : place + 4])
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("Code: ") for line in lines[:4])
    everything = simcore("papers")[1]
    assert all(name in everything for name in PAPERS)


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (("--paper", "wu2020"), "accuracy"),
        (("--paper", "ren2023"), "accuracy"),
        (("--paper", "ren2023", "--metric", "f1"), "f1"),
        ((), None),
    ],
)
def test_plot_shows_the_metric_of_the_paper(keywords, tmp_path, typed, wanted):
    _, found = keywords(draw, "plot", "plot", tmp_path, "--out", tmp_path / "figures", *typed)
    assert found.get("metric") == wanted
