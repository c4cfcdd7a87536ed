"""The code of the page, and of the docstrings, runs."""

import doctest
import re
from pathlib import Path

import pytest
import torch

import simcore

PAGE = Path(__file__).resolve().parents[2] / "docs" / "record.md"


def test_the_page():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    scope = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for block in blocks:
            exec(block, scope)
    assert {name: layer.shape for name, layer in scope["layers"].items()} == {
        "0": (200, 8), "1": (200, 8), "2": (200, 16), "3": (200, 16)
    }  # fmt: skip
    assert scope["result"].columns == ("0", "1")
    assert scope["student"][0].weight.grad is not None


@pytest.mark.parametrize("name", ["compare", "record"])
def test_docstrings(name):
    (example,) = doctest.DocTestFinder(recurse=False).find(getattr(simcore, name), name, globs={})
    report = []
    result = doctest.DocTestRunner().run(example, out=report.append)
    assert result.failed == 0, "".join(report)
    assert result.attempted > 0
