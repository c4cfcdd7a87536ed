"""What sections of a file plan: for which models, on which devices, from which tables."""

import pytest

from simlab.errors import UserError
from simlab.sweeps.spec import make_spec
from simlab.sweeps.sweep import make_plan

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


def test_baselines_of_a_task_are_planned_once_and_random_weights_for_each_model():
    plan = plan_of(models=["minilm", "gpt2"], finetune={"seeds": "3..4"}, baselines=True)
    titles = [job.title for job in plan.jobs if "random weights" in job.title]
    assert titles == [
        f"{name} from random weights rt" for name in ("minilm", "gpt2") for _ in range(2)
    ]
    trained = [job for job in plan.jobs if job.kind == "finetune" and job.title in titles]
    assert [job.params["recipe"]["seed"] for job in trained] == [3, 3]
    assert all(job.params["recipe"]["random_init"] for job in trained)
    assert plan.counts()["baselines"] == 1
    with pytest.raises(UserError, match=r"\[finetune\], which \[baselines\] needs"):
        plan_of(finetune=None, baselines=True)


def test_a_random_twin_is_compared_with_its_model_where_it_is_named():
    stages = ["orig", "ft", "random"]
    grids = {"between": "tuning", "stages": stages}
    plan = plan_of(extract={"stages": stages}, grids=grids)
    found = [job.params["comparison"] for job in plan.jobs if job.kind == "grid"]
    assert found == ["RANDOM-ORIG", "FT-ORIG", "FT-ORIG"]


def keys(**changes):
    return [job.key for job in plan_of(**changes).jobs]


def test_the_device_of_an_extraction_changes_no_key():
    elsewhere = {"extract": {"device": "offload"}}
    assert keys(**elsewhere) == keys()
    told = {job.hints["device"] for job in plan_of(**elsewhere).jobs if job.kind == "extract"}
    assert told == {"offload"}


def test_the_device_of_a_grid_is_told_and_changes_no_key():
    def given(**device):
        return {"grids": [{"measure": "svcca", "between": ["within", "joint"], **device}]}

    assert keys(**given(device="cpu")) == keys(**given())
    for device in ({"device": "cpu"}, {}):
        jobs = [job for job in plan_of(**given(**device)).jobs if job.kind == "grid"]
        assert jobs
        assert {job.hints["device"] for job in jobs} == {device.get("device", "auto")}


def test_columns_are_checked_when_a_sweep_is_planned(tmp_path):
    table = tmp_path / "texts.csv"
    table.write_text("body,verdict\nA text,good\n")
    task = {"name": str(table), "text_column": "body", "label_column": "verdict"}
    for wrong, key in (({"text_column": "text"}, "text"), ({"label_column": None}, "label")):
        given = {k: v for k, v in {**task, **wrong}.items() if v is not None}
        with pytest.raises(UserError) as found:
            plan_of(tasks=[given])
        assert str(found.value) == (
            f"sweep, key tasks.{key}_column: wanted a column of {table} (body, verdict), "
            f"found {key!r}"
        )
    unlabelled = {"name": str(table), "text_column": "body"}
    make_plan(make_spec({"models": ["minilm"], "tasks": [unlabelled], "extract": {"split": "all"}}))
    pretrain = {"texts": [unlabelled], "hidden": 8, "heads": 1, "layers": 1}
    plan_of(models=[{"label": "own", "pretrain": pretrain}])
    pretrain["texts"] = [{"name": str(table)}]
    with pytest.raises(UserError, match=r"key models\.pretrain\.texts\.text_column: wanted a col"):
        plan_of(models=[{"label": "own", "pretrain": pretrain}])
    for name, content in (("t.tsv", "body\n"), ("t.jsonl", '{"body": 1}\n'), ("t.json", "[{}]")):
        (tmp_path / name).write_text(content)
        with pytest.raises(
            UserError, match=r"tasks\.text_column: wanted a column of .*found 'text'"
        ):
            plan_of(tasks=[str(tmp_path / name)])


@pytest.mark.parametrize("size", ["train_size", "heldout_size"])
def test_rows_are_counted_when_a_sweep_is_planned(tmp_path, size):
    table = tmp_path / "texts.csv"
    table.write_text("text,label\n" + "".join(f"text {i},{i % 2}\n" for i in range(9)))
    task = {"name": str(table), size: 99}
    with pytest.raises(UserError, match=f"{size}: wanted 1 to .*, found 99"):
        plan_of(tasks=[task])
