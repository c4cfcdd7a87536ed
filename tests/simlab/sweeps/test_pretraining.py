"""Sweeps whose models are pretrained in the sweep: the file, the plan, and a whole run."""

import pytest

from simcore import cka_grid
from simlab import Sweep, TaskOptions, extract, load_representations, load_task
from simlab.errors import UserError
from simlab.store.files import read_json
from simlab.sweeps.disk import checkpoint_bytes
from simlab.sweeps.spec import make_spec
from simlab.sweeps.sweep import make_plan
from support.lab.inline import run

SIZE = {"layers": 2, "hidden": 8, "heads": 2, "max_steps": 3, "batch_size": 8, "max_length": 24}
MINI = {"pretrain": {"texts": ["rt"], **SIZE}, "seeds": "0..2", "label": "mini"}
BASE = {"models": [MINI], "tasks": ["rt"], "finetune": {"seeds": 1, "max_steps": 2}}


def plan_of(changes=(), **others):
    model = {**MINI, "pretrain": {**MINI["pretrain"], **dict(changes)}}
    return make_plan(make_spec({**BASE, "models": [model], **others}))


def test_every_job_of_a_model_begins_with_its_pretraining():
    jobs = plan_of().jobs
    assert [(job.kind, job.title, job.needs) for job in jobs[:6]] == [
        ("pretrain", "mini[0]", ()),
        ("extract", "mini-ORIG[0] cls heldout rt", (0,)),
        ("grid", "ORIG-ORIG cka cls rt", (1,)),
        ("finetune", "mini-FT[0] rt", (0,)),
        ("extract", "mini-FT[0] cls heldout rt", (3,)),
        ("scores", "mini-FT[0] rt", (3,)),
    ]
    assert plan_of().counts()["pretrain"] == 3


def test_all_that_needs_the_original_needs_its_pretraining():
    plan = plan_of(
        truncate={"modes": ["untuned", "tuned-orig"]},
        inject={"methods": "itself", "directions": "one"},
        freeze={"bottom": 1},
    )
    made = [number for number, job in enumerate(plan.jobs) if job.kind == "pretrain"]
    for job in plan.jobs:
        if job.kind in ("truncate", "inject", "finetune"):
            assert job.needs[-1] in made
    untuned = plan_of(truncate={"modes": ["untuned"]})
    assert all(len(job.needs) == 1 for job in untuned.jobs if job.kind == "truncate")


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden": 16},
        {"max_steps": 4},
        {"texts": ["imdb"]},  # from the same package as rt
        {"texts": ["rt", "imdb"]},
        {"texts": [{"name": "rt", "train_size": 10}]},
        {"tokenizer": "google-bert/bert-base-uncased"},
    ],
)
def test_what_changes_a_model_changes_every_key(changes):
    before, after = ({job.key for job in plan_of(c).jobs} for c in ((), changes))
    assert not before & after


def test_what_changes_nothing_keeps_the_keys():
    before = {job.key for job in plan_of().jobs}
    assert before == {job.key for job in plan_of({"vocabulary": 8192}).jobs}  # the default, named
    model = {**MINI, "seeds": [0, 1, 2, 3]}
    assert before < {job.key for job in make_plan(make_spec({**BASE, "models": [model]})).jobs}


@pytest.mark.parametrize(
    "model, message",
    [
        ({**MINI, "name": "minilm"}, "wanted one of the keys .* found 'name, pretrain'"),
        ({"pretrain": SIZE}, r"key models\[0\].pretrain.texts: wanted this key, found none"),
        ({"pretrain": {"texts": []}}, r"key models\[0\].pretrain.texts: wanted .*at least 1 item"),
        (
            {"pretrain": {"texts": ["rt"], "hiden": 3}},
            r"key models\[0\].pretrain.hiden: wanted .*did you mean 'hidden'\?",
        ),
        (
            {"pretrain": {"texts": ["rt"], "hidden": 10, "heads": 3}},
            r"key models\[0\].pretrain.hidden = 10: wanted a multiple of heads = 3",
        ),
        (
            {**MINI, "revisions": "checkpoint-*"},
            r"revisions: wanted none beside 'pretrain', whose key is 'keep_steps'",
        ),
        (
            {"pretrain": {"texts": ["rt"], **SIZE, "keep_steps": 9}},
            r"key models\[0\].pretrain.keep_steps: wanted at most 4, steps 0 to 3, found 9",
        ),
        ({"pretrain": {"texts": ["rt"], "seed": 3}}, r"key models\[0\].pretrain.seed: wanted"),
    ],
)
def test_a_mistake_is_named_in_one_line(model, message):
    with pytest.raises(UserError, match=message):
        make_spec({**BASE, "models": [model]})


def test_each_kept_step_is_read_from_one_pretraining():
    plan = plan_of(
        {"keep_steps": 3},
        grids={"between": ["steps", "restarts"], "to": "last", "estimator": "biased"},
        inject={"methods": "itself", "directions": "one"},
    )
    jobs, made = plan.jobs, [n for n, job in enumerate(plan.jobs) if job.kind == "pretrain"]
    assert len(made) == 3
    readers = [job for job in jobs if job.kind in ("extract", "finetune")]
    of_original = [job for job in readers if job.needs[0] in made]
    assert len({job.key for job in of_original}) == len(of_original) == 3 * 3 * 2
    assert {job.params["step"] for job in of_original} == {0, 1, 3}
    assert {(g["comparison"], g["x"][0]["step"], g["y"][0]["step"]) for g in grids_of(jobs)} >= {
        *(("ORIG-last step", 0, 3), ("ORIG-last step", 1, 3), ("ORIG[0]-ORIG[1]", 1, 1))
    }
    between = [grid for grid in grids_of(jobs) if "[" in grid["comparison"]]
    assert all(grid["x"][0]["step"] == grid["y"][0]["step"] for grid in between)
    injections = [job for job in jobs if job.kind == "inject"]
    assert {job.params["step"] for job in injections} == {0, 1, 3}
    alone = plan_of().jobs[0].hints["bytes"]
    assert jobs[made[0]].hints["bytes"] == 4 * alone


def grids_of(jobs):
    return [job.params for job in jobs if job.kind == "grid"]


def test_held_out_rows_of_a_task_are_not_read():
    for heldout, found in (({}, "1000 and 0"), ({"heldout_size": 50, "split_seed": 1}, "50 and 1")):
        model = {"pretrain": {"texts": [{"name": "rt", **heldout}]}}
        task = {"name": "rt", "heldout_size": 50}
        with pytest.raises(UserError, match=f"key models: wanted heldout_size 50 .*'{found}'"):
            make_spec({"models": [model], "tasks": [task]})
    model = {"pretrain": {"texts": [{"name": "rt", "train_size": 50, "heldout_size": 1000}]}}
    make_spec({"models": [model], "tasks": ["rt", "stsb"]})


def test_one_model_needs_no_seeds():
    model = {"pretrain": {"texts": ["rt"]}}
    plan = make_plan(make_spec({**BASE, "models": [model]}))
    labels = [job.hints["label"] for job in plan.jobs if job.kind == "extract"]
    assert labels == ["pretrained-ORIG", "pretrained-FT[1]"]


def test_bytes_are_guessed_from_the_recipe():
    from transformers import BertConfig, BertForMaskedLM

    recipe = make_spec(BASE).models[0].pretrain.recipe(0)
    config = BertConfig(
        vocab_size=recipe.vocabulary,
        hidden_size=recipe.hidden,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        intermediate_size=recipe.width,
        max_position_embeddings=recipe.max_length,
    )
    model = BertForMaskedLM(config)
    guess = checkpoint_bytes(recipe)
    assert guess == pytest.approx(4 * sum(p.numel() for p in model.parameters()), rel=0.2)


@pytest.fixture(scope="module")
def content(tiny_bert, entry):
    """A file with two models to pretrain, and every job that reads the original."""
    pretraining = {"texts": [entry], **SIZE, "tokenizer": str(tiny_bert.path), "vocabulary": 0}
    return {
        "models": [{"pretrain": pretraining, "seeds": [0, 1], "label": "mini"}],
        "tasks": [entry],
        "finetune": {"max_steps": 2, "seeds": 7},
        "extract": {"kind": "mean", "stages": ["orig", "ft", "random"]},
        "grids": [{"estimator": "biased", "between": ["tuning", "restarts"]}],
        "truncate": {"modes": ["untuned", "tuned-orig"], "head_most_steps": 2},
        "inject": {"methods": ["identity", "random-classifier"], "directions": "one"},
        "freeze": {"bottom": 1},
    }


@pytest.mark.slow
def test_a_whole_sweep_of_models_that_are_made_in_it(content, tmp_path):
    sweep = Sweep(content)
    report = run(sweep, tmp_path / "out")
    assert report.failed == ()
    assert report.done == sweep.plan().counts()
    assert report.done["pretrain"] == 2
    frame = sweep.results(tmp_path / "out")
    assert {"mini-ORIG[0]", "mini-FT[0]"} <= {*frame["label_x"], *frame["label_y"]}
    between = frame[frame["comparison"] == "ORIG[0]-ORIG[1]"]
    assert 0 < between["value"].iloc[-1] < 1
    again = run(sweep, tmp_path / "out")
    assert not again.done


@pytest.mark.slow
def test_a_step_is_extracted_and_tuned_as_it_was_kept(content, tmp_path):
    """Each step is as a command finds it in the folder of the pretraining."""
    (model,) = content["models"]
    stepped = {**model, "pretrain": {**model["pretrain"], "keep_steps": 3}}
    grids = [{"estimator": "biased", "between": ["tuning", "steps", "restarts"]}]
    few = {name: content[name] for name in ("tasks", "finetune", "truncate", "inject")}
    sweep = Sweep({**few, "models": [stepped], "grids": grids, "keep": "all"})
    out = tmp_path / "out"
    report = run(sweep, out)
    assert (report.failed, report.done["pretrain"]) == ((), 2)
    rows = sweep.results(out)
    found = rows[(rows["comparison"] == "ORIG-last step") & (rows["layer_x"] == rows["layer_y"])]
    assert ({*found["step_x"]}, {*found["step_y"]}) == ({0, 1}, {3})
    one = found[(found["seed_x"] == 1) & (found["step_x"] == 1) & (found["layer_x"] == 2)]
    folder = next(
        path.parent
        for path in (out / "objects" / "pretrain").rglob("pretraining.json")
        if path.parent.name == "checkpoint-1" and read_json(path)["recipe"]["seed"] == 1
    )
    sides = []
    columns = TaskOptions(text_column="body", label_column="verdict")
    task = load_task(content["tasks"][0]["name"], columns)
    for step in (1, 3):
        place = tmp_path / f"rows-{step}"
        extract(folder.with_name(f"checkpoint-{step}"), task, place)
        sides.append(load_representations(place).layers[2:])
    wanted = cka_grid(*sides, estimator="biased")
    assert one["value"].item() == pytest.approx(wanted.item(), abs=1e-9)


@pytest.mark.slow
def test_pretrained_models_stay_where_checkpoints_go(content, tmp_path):
    few = {name: content[name] for name in ("models", "tasks", "finetune", "grids")}
    places = {"representations": {"pretrain", "extract"}, "results": set()}
    for keep, kinds in places.items():
        out = tmp_path / keep
        sweep = Sweep({**few, "keep": keep})
        run(sweep, out)
        weights = {
            file.relative_to(out / "objects").parts[0] for file in out.rglob("*.safetensors")
        }
        assert weights == kinds
