"""The device of an extraction or a grid: workers are told it, and no key has it."""

from simlab.sweeps.planner import make_plan
from simlab.sweeps.spec import make_spec

BASE = {"models": ["minilm"], "tasks": ["rt"], "finetune": {"seeds": "1..2", "max_steps": 5}}


def plan_of(**changes):
    return make_plan(make_spec({**BASE, **changes}))


def keys(**changes):
    return [job.key for job in plan_of(**changes).jobs]


def test_the_device_of_an_extraction_changes_no_key():
    elsewhere = {"extract": {"device": "offload"}}
    assert keys(**elsewhere) == keys()
    told = {job.hints["device"] for job in plan_of(**elsewhere).jobs if job.kind == "extract"}
    assert told == {"offload"}


def test_the_device_of_a_grid_is_told_and_changes_no_key():
    def given(**device):
        return {
            "grids": [
                {"measure": ["neuronsim", "svcca"], "between": ["within", "joint"], **device}
            ],
            "localize": device or True,
        }

    assert keys(**given(device="cpu")) == keys(**given())
    for device in ({"device": "cpu"}, {}):
        jobs = [j for j in plan_of(**given(**device)).jobs if j.kind in ("grid", "localize")]
        assert {job.kind for job in jobs} == {"grid", "localize"}
        assert {job.hints["device"] for job in jobs} == {device.get("device", "auto")}
