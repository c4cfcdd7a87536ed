"""The tests of peers (`outside`): a table that hides neither a failure nor a test of their own."""

import json
import os

import pytest

from outside.run import PEERS, _row
from support.pages import ROOT
from support.processes import python

DCOR = PEERS[0]
CONSTANT = "test_dcor.py::TestDistanceCorrelation::test_dcor_constant"
MULTIVARIATE = "test_dcor.py::TestDistanceCorrelation::test_distance_correlation_multivariate"


def result(test, outcome="passed", reached=("distance_correlation",)):
    return {"test": f"tests/{test}", "outcome": outcome, "error": "Error", "reached": [*reached]}


def test_explained_failures_and_own_tests_are_counted():
    tests = [result(CONSTANT, "failed"), result(MULTIVARIATE, "failed"), result("a.py::test_b")]
    line, wrong = _row(DCOR, [*tests, result("a.py::test_own", reached=())])
    assert line.startswith("| dcor | 1 | 2 | 1 | the correlation with a constant")
    assert wrong == []


def test_what_no_adapter_explains_is_told():
    tests = [result(CONSTANT), result(MULTIVARIATE, "failed"), result("a.py::test_b", "failed")]
    _, wrong = _row(DCOR, tests)
    assert wrong == ["dcor a.py::test_b: Error", f"dcor {CONSTANT}: wanted a failure"]


def test_a_peer_without_a_test_of_simcore_is_told():
    _, wrong = _row(PEERS[2], [result("a.py::test_own", reached=())])
    assert wrong == ["netrep: no test reached simcore"]


PEER = {
    "peer.py": "def double(x): return 2 * x\ndef triple(x): return 3 * x\n",
    "outside/adapters/small.py": """
from outside.plugin import Unmapped, replace
@replace("peer:double")
def double(original, x):
    if x < 0:
        raise Unmapped
    return x + x + 1
""",
    "test_peer.py": """
from peer import double, triple
def test_replaced(): assert double(2) == 4
def test_unmapped(): assert double(-2) == -4
def test_own(): assert triple(2) == 6
""",
}


@pytest.fixture
def peer(tmp_path):
    """A package, its tests, and an adapter whose function is wrong."""
    for name, text in PEER.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("plugin.py", "__init__.py"):
        (tmp_path / "outside" / name).write_text((ROOT / "tests/outside" / name).read_text())
    (tmp_path / "outside/adapters/__init__.py").touch()
    return tmp_path


@pytest.mark.deep
def test_a_test_is_simcores_if_it_reached_a_function_that_took_its_arguments(peer):
    results = peer / "results.json"
    how = ("-q", "-c", os.devnull, "-p", "outside.plugin", "-p", "no:cacheprovider")
    environment = {"OUTSIDE_PEER": "small", "OUTSIDE_RESULTS": str(results)}
    environment["PYTHONPATH"] = str(peer)
    python("-m", "pytest", *how, "test_peer.py", ok=False, cwd=peer, **environment)
    found = {one["test"].partition("::")[2]: one for one in json.loads(results.read_text())}
    assert {name: (one["outcome"], one["reached"]) for name, one in found.items()} == {
        "test_replaced": ("failed", ["double"]),
        "test_unmapped": ("passed", []),
        "test_own": ("passed", []),
    }
