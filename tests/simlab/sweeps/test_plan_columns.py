"""Columns of the tables of a sweep are checked when it is planned."""

import pytest

from simlab.errors import UserError
from simlab.sweeps.planner import make_plan
from simlab.sweeps.spec import make_spec


def plan_of(**what):
    return make_plan(make_spec({**what, "finetune": {"seeds": "1..2", "max_steps": 5}}))


def test_columns_are_checked_when_a_sweep_is_planned(tmp_path):
    table = tmp_path / "texts.csv"
    table.write_text("body,verdict\nA text,good\n")
    task = {"name": str(table), "text_column": "body", "label_column": "verdict"}
    for wrong, key in (({"text_column": "text"}, "text"), ({"label_column": None}, "label")):
        given = {k: v for k, v in {**task, **wrong}.items() if v is not None}
        with pytest.raises(UserError) as found:
            plan_of(models=["minilm"], tasks=[given])
        assert str(found.value) == (
            f"sweep, key tasks.{key}_column: wanted a column of {table}, body, verdict; found "
            f"{key!r}"
        )
    unlabelled = {"name": str(table), "text_column": "body"}
    make_plan(make_spec({"models": ["minilm"], "tasks": [unlabelled], "extract": {"split": "all"}}))
    pretrain = {"texts": [unlabelled], "hidden": 8, "heads": 1, "layers": 1}
    plan_of(models=[{"label": "own", "pretrain": pretrain}], tasks=["rt"])
    pretrain["texts"] = [{"name": str(table)}]
    with pytest.raises(UserError, match=r"key models\.pretrain\.texts\.text_column: wanted a col"):
        plan_of(models=[{"label": "own", "pretrain": pretrain}], tasks=["rt"])
    for name, content in (("t.tsv", "body\n"), ("t.jsonl", '{"body": 1}\n'), ("t.json", "[{}]")):
        (tmp_path / name).write_text(content)
        with pytest.raises(
            UserError, match=r"tasks\.text_column: wanted a column of .*found 'text'"
        ):
            plan_of(models=["minilm"], tasks=[str(tmp_path / name)])


@pytest.mark.parametrize("size", ["train_size", "heldout_size"])
def test_rows_are_counted_when_a_sweep_is_planned(tmp_path, size):
    table = tmp_path / "texts.csv"
    table.write_text("text,label\n" + "".join(f"text {i},{i % 2}\n" for i in range(9)))
    task = {"name": str(table), size: 99}
    with pytest.raises(UserError, match=f"{size}: wanted 1 to .*, found 99"):
        plan_of(models=["minilm"], tasks=[task])
