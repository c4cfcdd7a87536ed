"""The steps of training runs are found by names, and their numbers are read there."""

import pytest

from simlab.errors import UserError
from simlab.models.sources import step_name, step_of, training_runs


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step0", 0),
        ("step143000", 143_000),
        ("checkpoint-500", 500),
        ("multiberts-seed_0-step_20k", 20_000),
        ("step-2M", 2_000_000),
        ("stage1-step5000-tokens21B", 5_000),
    ],
)
def test_the_number_is_read_from_the_name(name, step):
    assert step_of(name) == step


@pytest.mark.parametrize("name", ["main", "footstep3", "step", "step3b", "step1-step2"])
def test_a_name_without_one_number_is_refused(name):
    with pytest.raises(UserError, match=f"^model {name}: wanted one step in the name of a revis"):
        step_of(name)


def test_every_seed_has_every_step():
    found = training_runs("a/pythia-seed_{0..1}", (), ["step{0,1}", "step{1000..3000..1000}"])
    assert [(one.number, one.step) for one in found] == [
        (seed, step) for seed in (0, 1) for step in (0, 1, 1000, 2000, 3000)
    ]
    assert found[-1].name == "a/pythia-seed_1@step3000"
    assert {(one.family, one.run) for one in found[:5]} == {("pythia", "a/pythia-seed_0")}


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("a/b-seed_{0..1}-step_{0..40..20}k", "a/b-seed_1-step_40k"),
        ("a/b-seed_{0..1}@step{0,20000,40000}", "a/b-seed_1@step40000"),
    ],
)
def test_steps_at_the_end_of_a_name_are_the_same_axis(pattern, name):
    found = training_runs(pattern)
    assert [one.step for one in found] == [0, 20_000, 40_000] * 2
    assert [one.number for one in found] == [0] * 3 + [1] * 3
    assert found[-1].name == name
    assert {one.family for one in found} == {"b"}


def test_folders_are_found_and_ordered_by_their_numbers(tmp_path):
    for step in (100, 20, 3):
        (tmp_path / "mini" / f"checkpoint-{step}").mkdir(parents=True)
    (tmp_path / "mini" / "checkpoint-7").write_text("no folder")
    for found in (
        training_runs(f"{tmp_path}/mini/checkpoint-*"),
        training_runs(f"{tmp_path}/mini", (), ["checkpoint-*"]),
    ):
        assert [one.step for one in found] == [3, 20, 100]
        assert found[0].name == f"{tmp_path}/mini/checkpoint-3"
        assert found[0].family == "mini"
    with pytest.raises(UserError, match=r"step_\*: wanted folders with such names, found none"):
        training_runs(f"{tmp_path}/mini", (), ["step_*"])


@pytest.mark.parametrize(
    ("name", "revisions", "wanted"),
    [
        ("a/b", ["step{1,1000}", "step_1k"], "another step for each revision, found 1,000 for"),
        ("a/b", ["main"], "^model a/b@main: wanted one step in the name"),
        ("a/b@main", ["step1"], "wanted no revision beside 'revisions'"),
        ("a/b@step{1,2}", ["step3"], "found them in both"),
        ("a/b", ["step*"], "wanted the numbers of revisions of the hub"),
    ],
)
def test_revisions_that_are_no_axis_are_refused(name, revisions, wanted):
    with pytest.raises(UserError, match=wanted):
        training_runs(name, (), revisions)


def test_other_names_are_as_before():
    assert [one.step for one in training_runs("google/multiberts-seed_{0..2}")] == [None] * 3
    assert training_runs("a/step3-mini")[0].step is None


def test_the_folder_of_a_step_is_read_back():
    assert [step_of(step_name(step)) for step in (0, 500)] == [0, 500]
