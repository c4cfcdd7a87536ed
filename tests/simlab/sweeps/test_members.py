"""A member of a sweep is a model, a seed and a step of its training."""

import pytest

from simlab import Sweep
from simlab.errors import UserError
from simlab.sweeps.planner import make_plan
from simlab.sweeps.spec import make_spec
from support.lab.inline import Inline
from support.lab.runs import save_runs

SEEDS, STEPS = (0, 1), (1, 10, 100)


@pytest.fixture(scope="module")
def runs(tiny_bert, tmp_path_factory):
    """The pattern of two seeds of a tiny model, each with three steps."""
    return save_runs(tiny_bert.path, tmp_path_factory.mktemp("runs"), SEEDS, STEPS)


def content(runs, reviews, **changes):
    task = {"name": str(reviews), "text_column": "body", "label_column": "verdict"}
    models = [{"name": runs, "revisions": "checkpoint-*"}]
    return {"models": models, "tasks": [task], "grids": {"estimator": "biased"}, **changes}


def test_two_seeds_at_three_steps_are_six_members(runs, reviews, tmp_path):
    sweep, out = Sweep(content(runs, reviews)), tmp_path / "out"
    report = sweep.run(out, engine=Inline(), durable=False, figures=False)
    assert (report.failed, report.waiting) == ((), 0)
    rows = sweep.results(out)
    own = rows[rows["comparison"] == "ORIG-ORIG"]
    wanted = {(seed, step) for seed in SEEDS for step in STEPS}
    assert {*zip(own["seed_x"], own["step_x"], strict=True)} == wanted
    assert (own["step_x"] == own["step_y"]).all()
    assert set(own["label_x"]) == {f"mini-ORIG[{seed}] @ {step}" for seed, step in wanted}
    off = own[(own["layer_x"] > 0) & (own["layer_x"] < own["layer_y"])]
    assert off.groupby(["layer_x", "layer_y"])["value"].nunique().eq(6).all()
    between = rows[rows["comparison"] == "ORIG[0]-ORIG[1]"]
    assert set(between["step_x"]) == set(STEPS)
    assert (between["step_x"] == between["step_y"]).all()


def test_no_two_steps_share_an_extraction(runs, reviews):
    plan = make_plan(make_spec(content(runs, reviews, finetune={"seeds": "1..2"})))
    assert plan.counts()["extract"] == 6 + 2 * 6
    assert plan.counts()["finetune"] == 2 * 6
    grids = [job.params for job in plan.jobs if job.kind == "grid"]
    tuned = [one for one in grids if one["comparison"] == "FT-ORIG"]
    assert all(one["x"][0]["step"] == one["y"][0]["step"] for one in tuned)
    pairs = [one for one in grids if one["comparison"].count("[") == 2]
    assert all(one["x"][0]["step"] == one["y"][0]["step"] for one in pairs)


def test_restarts_and_models_are_compared_at_equal_steps(runs, reviews, tiny_bert):
    models = [
        {"name": runs, "revisions": "checkpoint-{1,10}", "label": "a"},
        {"name": runs, "revisions": "checkpoint-{10,100}", "label": "b"},
    ]
    grids = {"between": ["models", "restarts"]}
    plan = make_plan(make_spec(content(runs, reviews, models=models, grids=grids)))
    jobs = [job.params for job in plan.jobs if job.kind == "grid"]
    steps = [(one["comparison"], one["x"][0]["step"], one["y"][0]["step"]) for one in jobs]
    assert sorted(steps) == sorted(
        [("ORIG a-b", 10, 10)] * 2 + [("ORIG[0]-ORIG[1]", step, step) for step in (1, 10, 10, 100)]
    )


def test_one_label_of_two_models_is_refused(runs, reviews):
    models = [{"name": runs, "revisions": "checkpoint-1"}] * 2
    with pytest.raises(UserError, match="another label for each model, found 'mini @ 1' for"):
        make_plan(make_spec(content(runs, reviews, models=models)))
