"""Models at steps of their training: restarts, pairs of steps, and one layer at all steps."""

import numpy as np
import pytest

from simlab import Sweep
from simlab.errors import UserError
from simlab.results.results import JOINT
from simlab.sweeps import comparisons
from simlab.sweeps.spec import make_spec
from simlab.sweeps.sweep import make_plan
from support.lab.commandline import check_refused
from support.lab.inline import run
from support.lab.runs import save_runs

SEEDS, STEPS = (0, 1), (2, 10, 100)
BIASED = {"estimator": "biased"}


@pytest.fixture(scope="module")
def runs(tiny_bert, tmp_path_factory):
    return save_runs(tiny_bert.path, tmp_path_factory.mktemp("runs"), SEEDS, STEPS)


def content(name, entry, grids, **changes):
    models = [{"name": name, "revisions": "checkpoint-*"}]
    return {"models": models, "tasks": [entry], "grids": grids, **changes}


def steps_of(plan):
    """The comparison, the seed of both sides, and the two steps of every grid of two members."""
    grids = (job.params for job in plan.jobs if job.kind == "grid" and job.params["y"])
    sides = ((grid["comparison"], grid["x"][0], grid["y"][0]) for grid in grids)
    return [(name, x["seed"], y["seed"], x["step"], y["step"]) for name, x, y in sides]


@pytest.fixture(scope="module")
def made(runs, entry, tmp_path_factory):
    """The rows of a sweep with every kind of grid, its folder, and its file."""
    grids = [
        BIASED,
        {"between": "steps", **BIASED},
        {"between": "steps", "layer": [0, 2], **BIASED},
        {"between": "joint", **BIASED},
    ]
    file = content(runs, entry, grids, extract={"kind": "mean"})
    sweep, out = Sweep(file), tmp_path_factory.mktemp("sweep") / "out"
    report = run(sweep, out)
    assert (report.failed, report.waiting) == ((), 0)
    return sweep.results(out), out, file


def test_two_seeds_at_three_steps_are_six_members(made):
    rows = made[0]
    own = rows[rows["comparison"] == "ORIG-ORIG"]
    wanted = {(seed, step) for seed in SEEDS for step in STEPS}
    assert {*zip(own["seed_x"], own["step_x"], strict=True)} == wanted
    assert (own["step_x"] == own["step_y"]).all()
    assert set(own["label_x"]) == {f"mini-ORIG[{seed}] @ {step}" for seed, step in wanted}
    off = own[own["layer_x"] < own["layer_y"]]
    assert off.groupby(["layer_x", "layer_y"])["value"].nunique().eq(6).all()
    between = rows[rows["comparison"] == "ORIG[0]-ORIG[1]"]
    assert set(between["step_x"]) == set(STEPS)
    assert (between["step_x"] == between["step_y"]).all()


def test_no_two_steps_share_an_extraction(runs, entry):
    plan = make_plan(make_spec(content(runs, entry, BIASED, finetune={"seeds": "1..2"})))
    assert plan.counts()["extract"] == 6 + 2 * 6
    assert plan.counts()["finetune"] == 2 * 6
    grids = [job.params for job in plan.jobs if job.kind == "grid"]
    tuned = [one for one in grids if one["comparison"] == "FT-ORIG"]
    assert all(one["x"][0]["step"] == one["y"][0]["step"] for one in tuned)
    pairs = [one for one in grids if one["comparison"].count("[") == 2]
    assert all(one["x"][0]["step"] == one["y"][0]["step"] for one in pairs)


def test_restarts_and_models_are_compared_at_equal_steps(runs, entry, tiny_bert):
    models = [
        {"name": runs, "revisions": "checkpoint-{2,10}", "label": "a"},
        {"name": runs, "revisions": "checkpoint-{10,100}", "label": "b"},
    ]
    grids = {"between": ["models", "restarts"]}
    plan = make_plan(make_spec(content(runs, entry, grids, models=models)))
    jobs = [job.params for job in plan.jobs if job.kind == "grid"]
    steps = [(one["comparison"], one["x"][0]["step"], one["y"][0]["step"]) for one in jobs]
    assert sorted(steps) == sorted(
        [("ORIG a-b", 10, 10)] * 2 + [("ORIG[0]-ORIG[1]", step, step) for step in (2, 10, 10, 100)]
    )


def test_by_default_there_are_two_grids_for_each_step(made):
    wanted = {("ORIG-last step", 2, 100), ("ORIG-last step", 10, 100)}
    wanted |= {("ORIG-previous step", 10, 2), ("ORIG-previous step", 100, 10)}
    planned = [one for one in steps_of(Sweep(made[2]).plan()) if one[0].endswith(" step")]
    assert sorted(planned) == sorted(
        (name, seed, seed, x, y) for name, x, y in wanted for seed in (0, 1)
    )
    rows = made[0][made[0]["comparison"].str.endswith(" step")]
    assert {*zip(rows["comparison"], rows["step_x"], rows["step_y"], strict=True)} == wanted
    assert (rows["seed_x"] == rows["seed_y"]).all()
    cell = rows[(rows["layer_x"] == 2) & (rows["layer_y"] == 2)]
    # The last step and the one before it are a pair of both comparisons.
    assert (len(cell), cell["value"].round(12).nunique()) == (8, 6)


def test_the_first_step_may_be_the_reference(runs, entry):
    grids = {"between": "steps", "to": "first"}
    found = steps_of(make_plan(make_spec(content(runs, entry, grids))))
    assert {(name, x, y) for name, _, _, x, y in found} == {
        ("ORIG-first step", 10, 2),
        ("ORIG-first step", 100, 2),
    }


def test_many_steps_have_two_grids_each():
    models = [{"name": "a/b", "revisions": "step{1000..154000..1000}"}]
    grids = {"between": "steps"}
    plan = make_plan(make_spec({"models": models, "tasks": ["rt"], "grids": grids}))
    assert plan.counts()["grid"] == 2 * 153


def test_each_fine_tuning_has_its_own_run(runs, entry):
    grids = {"between": "steps", "to": "last", "stages": "ft"}
    plan = make_plan(make_spec(content(runs, entry, grids, finetune={"seeds": "1..2"})))
    labels = [
        (job.params["x"][0]["label"], job.params["y"][0]["label"])
        for job in plan.jobs
        if job.kind == "grid"
    ]
    assert len(labels) == 2 * 2 * 2
    assert all(x.partition(" @ ")[0] == y.partition(" @ ")[0] for x, y in labels)


def test_a_model_without_steps_is_refused():
    base = {"models": ["minilm"], "tasks": ["rt"]}
    with pytest.raises(UserError, match=r"grids\.between: wanted models with several steps"):
        make_plan(make_spec({**base, "grids": {"between": "steps"}}))
    with pytest.raises(UserError, match=r"grids.*\.to: wanted between = 'steps' beside this key"):
        make_spec({**base, "grids": {"to": "first"}})
    with pytest.raises(UserError, match=r"grids.*\.layer: wanted between = 'steps' beside this"):
        make_spec({**base, "grids": {"layer": 1}})


def test_a_layer_is_compared_at_every_step_with_every_step(made):
    rows = made[0]
    mine = rows[rows["comparison"].str.contains("steps, layer")]
    assert {*mine["comparison"]} == {
        f"{run} steps, layer {layer}"
        for run in {*rows["label_x"].str.partition(" @ ")[0]}
        for layer in (0, 2)
    }
    assert len(mine) == 2 * 2 * 3 * 3
    assert ((mine["layer_x"] == mine["layer_y"]) & (mine["seed_x"] == mine["seed_y"])).all()
    places = ["label_x", "label_y", "layer_x", "layer_y"]
    joint = rows[rows["experiment"].eq(JOINT) & ~rows.index.isin(mine.index)]
    all_layers = joint.set_index(places)["value"]
    values = mine.set_index(places)["value"]
    np.testing.assert_allclose(values, all_layers[values.index], rtol=1e-6)
    assert values.round(6).nunique() > 6
    assert {*zip(mine["step_x"], mine["step_y"], strict=True)} == {
        (x, y) for x in (2, 10, 100) for y in (2, 10, 100)
    }


def test_tiles_of_steps_share_a_grid(runs, entry, monkeypatch):
    monkeypatch.setattr(comparisons, "TILE", dict.fromkeys(comparisons.TILE, 2))
    grids = {"between": "steps", "layer": 1, "measure": "svcca"}
    plan = make_plan(make_spec(content(runs, entry, grids)))
    jobs = [job.params for job in plan.jobs if job.kind == "grid"]
    assert len(jobs) == 2 * 3
    assert len({job["grid"] for job in jobs}) == 2


def test_a_layer_beside_a_reference_adds_its_grid(runs, entry):
    grids = {"between": "steps", "to": "last", "layer": 1}
    plan = make_plan(make_spec(content(runs, entry, grids)))
    assert plan.counts()["grid"] == 2 * (2 + 1)


def test_a_layer_that_is_not_there_is_named(made):
    sweep = Sweep({**made[2], "grids": {"between": "steps", "layer": 9}})
    report = run(sweep, made[1])
    assert "extract" not in report.done
    message = str(report.failed[0])
    assert "wanted layer 9" in message
    assert "found layers 0 to" in message


def test_steps_by_steps_are_no_joint_grid_of_models(runs, entry):
    measures = [{"between": "steps", "layer": 1, "measure": ["neuronsim", "svcca"]}]
    with pytest.raises(UserError, match=r"localize: wanted joint grids of neuronsim and svcca"):
        make_plan(make_spec(content(runs, entry, measures, localize={})))


@pytest.mark.parametrize("how", [("--plan",), ("--out", "out")])
def test_the_command_names_the_file_without_steps(how, tmp_path, monkeypatch, simcore):
    monkeypatch.chdir(tmp_path)
    content = 'models = ["minilm"]\ntasks = ["rt"]\n[grids]\nbetween = "steps"\n'
    (tmp_path / "study.toml").write_text(content)
    wanted = "sweep study.toml, key grids.between: wanted models with several steps"
    check_refused(simcore("sweep", "study.toml", *how), wanted)
