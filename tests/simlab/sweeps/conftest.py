"""A toy sweep that ran without interruption, to compare others with."""

import pytest

from support.lab.toysweep import contents, rows, run_toy, toy_plan


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """Rows and objects of a run without interruption."""
    root = tmp_path_factory.mktemp("sweep") / "whole"
    plan = toy_plan(root)
    outcome = run_toy(root, plan)
    assert outcome.done == plan.counts()
    return rows(root, plan), contents(root)


@pytest.fixture(scope="session")
def entry(reviews):
    """The reviews as a task of a sweep file."""
    return {"name": str(reviews), "text_column": "body", "label_column": "verdict"}
