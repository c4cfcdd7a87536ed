"""The jobs of one task: baselines, and random twins."""

import pytest

from simlab.errors import UserError
from simlab.sweeps.planner import make_plan
from simlab.sweeps.spec import make_spec

BASE = {"models": ["minilm"], "tasks": ["rt"], "finetune": {"seeds": "1..2", "max_steps": 5}}


def plan_of(**changes):
    return make_plan(make_spec({**BASE, **changes}))


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
