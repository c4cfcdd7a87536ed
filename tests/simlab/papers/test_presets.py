"""The tables of papers: what they choose, and that every choice is an option of its own."""

import inspect
import os
import subprocess
import sys
from dataclasses import fields

import pytest

from simcore.align import SVCCAAligner
from simlab.cli import make_app
from simlab.errors import UserError
from simlab.papers.presets import PAPERS, paper_options, setting
from simlab.similarity.catalogue import settings
from simlab.training.recipes import Recipe, make_recipe

COMMANDS = {c.name or c.callback.__name__: c.callback for c in make_app().registered_commands}
ROWS = [
    pytest.param(paper, choice, id=f"{paper.name}-{choice.command}-{choice.option}-{number}")
    for paper in PAPERS.values()
    for number, choice in enumerate(paper.choices)
]


@pytest.mark.parametrize(("paper", "choice"), ROWS)
def test_every_choice_is_an_option_of_its_own(paper, choice):
    parameters = inspect.signature(COMMANDS[choice.command]).parameters
    assert choice.option in parameters
    assert "paper" in parameters
    assert choice.when.keys() <= parameters.keys()
    assert setting(choice).startswith("--")
    assert all((choice.text, choice.code, choice.why))


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("measure", ["cka", "cca", "svcca", "pwcca", "neuronsim", "mixedsim"])
def test_measures_take_the_choices_made_for_them(paper, measure):
    settings(measure, paper_options(paper, "grid", measure=measure))


@pytest.mark.parametrize("paper", PAPERS)
def test_a_recipe_is_what_the_paper_chooses_for_fine_tuning(paper):
    for task in ("rt", "mrpc"):
        chosen = paper_options(paper, "finetune", task=task)
        assert make_recipe(paper, task, {}) == Recipe(**chosen)
        assert chosen.keys() <= {field.name for field in fields(Recipe)}


def test_choices_depend_on_what_is_given():
    assert paper_options("wu2020", "grid", measure="svcca")["truncation"] == 0.99
    assert "truncation" not in paper_options("wu2020", "grid", measure="cka")
    assert "truncation" not in paper_options("wu2020", "grid", measure="svcca", truncation=20)
    assert paper_options("wu2020", "grid")["measure"] == "cka"
    assert paper_options("wu2020", "grid", measure=None)["estimator"] == "biased"
    assert paper_options("ren2023", "finetune", task="mrpc:data/mrpc")["epochs"] == 5
    assert paper_options("ren2023", "finetune", task="MRPC")["epochs"] == 5
    assert paper_options("ren2023", "finetune", task="rte")["epochs"] == 3


def test_unknown_papers_and_commands_are_refused():
    with pytest.raises(UserError, match=r"^paper='wu': wanted one of phang2021, wu2020, ren2023$"):
        paper_options("wu", "grid")
    with pytest.raises(UserError, match=r"^paper='wu2020': .* `simcore truncate` \(phang2021\)$"):
        paper_options("wu2020", "truncate")


def test_maps_of_injections_are_fitted_on_rows_that_the_text_defines():
    """Ren et al. 2023 define X and Y, which §4.5 maps, as means over the tokens of a text."""
    assert paper_options("ren2023", "inject")["fit_on"] == "mean-all"
    assert paper_options("ren2023", "extract")["kind"] == "mean-all"


def test_similarities_and_maps_of_svcca_keep_the_same_components():
    kept = paper_options("ren2023", "grid", measure="svcca")["truncation"]
    assert kept == SVCCAAligner().truncation


TABLE = """
title = "Of a user"
published = "none"
[[choices]]
command = "grid"
when = { measure = ["cka"] }
[choices.options.estimator]
value = "unbiased"
why = "few examples"
"""
TASK = """
[mine]
title = "Of a user"
text = "words"
labels = ["no", "yes"]
hub = "me/mine"
"""
SHOW = """
from simlab import paper_options
from simlab.papers.presets import PAPERS
from simlab.tasks.specs import TASKS
print(*PAPERS, paper_options("own2026", "grid", measure="cka"), TASKS["mine"].columns, len(TASKS))
"""


def test_a_folder_of_the_user_adds_papers_and_tasks(tmp_path):
    from simlab.tasks.specs import TASKS

    (tmp_path / "own2026.toml").write_text(TABLE)
    (tmp_path / "tasks.toml").write_text(TASK)
    show = {"capture_output": True, "text": True, "env": {**os.environ, "SIMCORE_TABLES": tmp_path}}
    done = subprocess.run([sys.executable, "-c", SHOW], **show)
    wanted = "phang2021 wu2020 ren2023 own2026 {'estimator': 'unbiased'} ('words', 'label')"
    assert done.stdout == f"{wanted} {len(TASKS) + 1}\n", done.stderr
    (tmp_path / "own2026.toml").write_text(TABLE.replace("why", "reason"))
    done = subprocess.run([sys.executable, "-c", SHOW], **show)
    assert "own2026.toml: wanted the table of a paper, found: " in done.stderr.splitlines()[-1]
