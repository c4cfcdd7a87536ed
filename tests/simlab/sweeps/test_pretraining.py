"""Sweeps whose models are pretrained in the sweep: the file, the plan, and a whole run."""

import pytest

from simlab import Sweep
from simlab.errors import UserError
from simlab.sweeps.estimates import checkpoint_bytes
from simlab.sweeps.planner import make_plan
from simlab.sweeps.spec import make_spec
from support.lab.inline import InlineEngine

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
        ({"label": "m"}, "wanted either the key 'name' or the key 'pretrain', found 'neither'"),
        ({**MINI, "name": "minilm"}, "wanted either .* found 'both'"),
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
        ({"pretrain": {"texts": ["rt"], "seed": 3}}, r"key models\[0\].pretrain.seed: wanted"),
    ],
)
def test_a_mistake_is_named_in_one_line(model, message):
    with pytest.raises(UserError, match=message):
        make_spec({**BASE, "models": [model]})


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
def content(tiny_bert, reviews):
    """A file with two models to pretrain, and every job that reads the original."""
    task = {"name": str(reviews), "text_column": "body", "label_column": "verdict"}
    pretraining = {"texts": [task], **SIZE, "tokenizer": str(tiny_bert.path), "vocabulary": 0}
    return {
        "models": [{"pretrain": pretraining, "seeds": [0, 1], "label": "mini"}],
        "tasks": [task],
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
    report = sweep.run(tmp_path / "out", engine=InlineEngine(), durable=False, figures=False)
    assert report.failed == ()
    assert report.done == sweep.plan().counts()
    assert report.done["pretrain"] == 2
    frame = sweep.results(tmp_path / "out")
    assert {"mini-ORIG[0]", "mini-FT[0]"} <= {*frame["label_x"], *frame["label_y"]}
    between = frame[frame["comparison"] == "ORIG[0]-ORIG[1]"]
    assert 0 < between["value"].iloc[-1] < 1
    again = sweep.run(tmp_path / "out", engine=InlineEngine(), durable=False, figures=False)
    assert not again.done


@pytest.mark.slow
def test_pretrained_models_stay_where_checkpoints_go(content, tmp_path):
    few = {name: content[name] for name in ("models", "tasks", "finetune", "grids")}
    places = {"representations": {"pretrain", "extract"}, "results": set()}
    for keep, kinds in places.items():
        out = tmp_path / keep
        sweep = Sweep({**few, "keep": keep})
        sweep.run(out, engine=InlineEngine(), durable=False, figures=False)
        weights = {
            file.relative_to(out / "objects").parts[0] for file in out.rglob("*.safetensors")
        }
        assert weights == kinds
