"""Sections for some models of a sweep alone, and sections that would plan nothing."""

import pytest

from simlab.errors import UserError
from simlab.sweeps.planner import make_plan
from simlab.sweeps.spec import make_spec

BASE = {"models": ["minilm"], "tasks": ["rt"], "finetune": {"seeds": "1..2", "max_steps": 5}}


def plan_of(**changes):
    return make_plan(make_spec({**BASE, **changes}))


def test_rows_and_grids_of_some_models_alone():
    """Models without attention stay out of its rows, and a joint grid has the chosen models."""
    plan = plan_of(
        models=[{"name": "minilm", "label": "a"}, {"name": "minilm", "label": "b"}],
        finetune=None,
        extract=[{"kind": "cls"}, {"kind": "attention", "models": "a"}],
        grids=[
            {"between": "joint", "kind": "cls", "models": "b"},
            {"between": "joint", "kind": "cls"},
            {"between": "within", "kind": "cls", "models": "a"},
            {"measure": "attention-js", "between": "joint", "kind": "attention"},
        ],
    )
    titles = {job.title for job in plan.jobs if job.kind == "extract"}
    assert not any("b-ORIG attention" in title for title in titles)
    grids = {
        (grid["comparison"], grid["measure"]): [side["label"] for side in grid["x"]]
        for grid in (job.params for job in plan.jobs if job.kind == "grid")
    }
    assert grids["b ORIG", "cka"] == ["b-ORIG"]
    assert grids["ORIG", "cka"] == ["a-ORIG", "b-ORIG"]
    assert grids["ORIG-ORIG", "cka"] == ["a-ORIG"]
    assert grids["ORIG", "attention-js"] == ["a-ORIG"]


def test_a_model_that_the_file_does_not_have_is_refused():
    with pytest.raises(UserError, match=r"key grids.models: wanted labels of models \(.*'mini'"):
        plan_of(grids=[{"between": "joint", "models": ["mini"]}])


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"grids": [{"measure": "cka", "kind": ["cls", "mean"]}]}, "grids"),
        ({"align": [{"methods": "linear", "kind": "mean"}]}, "align"),
        ({"complexity": {"kind": "mean"}}, "complexity"),
    ],
)
def test_a_section_names_kinds_that_are_extracted(section, key):
    wanted = rf"key {key}\.kind: wanted kinds of rows that are extracted \(cls\), found 'mean'"
    with pytest.raises(UserError, match=wanted):
        plan_of(**section)
    plan_of(**section, extract=[{"kind": ["cls", "mean"]}])


@pytest.mark.parametrize("between", ["restarts", "models"])
def test_a_section_of_grids_compares_something(between):
    one = {"grids": [{"between": between}, {"between": "within"}]}
    wanted = f"key grids.between: wanted models for {between}, found none"
    with pytest.raises(UserError, match=wanted):
        plan_of(**one, finetune={"seeds": 1, "max_steps": 5})
    if between == "restarts":
        assert plan_of(**one).counts()["grid"]


@pytest.mark.parametrize("section", [{"align": [{"methods": "linear"}]}, {"inject": [{}]}])
def test_a_comparison_of_restarts_needs_two(section):
    (key,) = section
    wanted = f"key {key}: wanted two restarts of a model or more, found none"
    with pytest.raises(UserError, match=wanted):
        plan_of(**section, finetune={"seeds": 1, "max_steps": 5})
    assert plan_of(**section).counts()[key]


def test_a_joint_grid_has_every_stage_of_its_name():
    """A grid named "ORIG + FT" had the pretrained model alone where FT has no such rows."""
    both, orig = {"kind": "cls"}, {"kind": "mean", "stages": "orig"}
    joint = {"measure": ["cka", "svcca"], "between": "joint"}
    plan = plan_of(tasks=["rt", "stsb"], extract=[both, orig], grids=[joint])
    grids = [job.params for job in plan.jobs if job.kind == "grid"]
    assert {(grid["comparison"], len(grid["x"])) for grid in grids} == {("ORIG + FT", 3)}
    assert len(grids) == 4
    line = "no joint grid ORIG + FT for rt, stsb, whose mean rows of stage ft are not extracted"
    assert plan.remarks() == [line]
    alone = plan_of(extract=[both, orig], grids=[joint, {**joint, "stages": "orig"}])
    of_means = [job for job in alone.jobs if job.title == "ORIG cka mean rt"]
    assert len(of_means) == 1
    with pytest.raises(UserError, match=r"joint grids extracted rows of each of stages$"):
        plan_of(extract=[orig], grids=[joint])
