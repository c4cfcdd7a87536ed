"""A pytest plugin for the tests of a peer: simcore takes the place of some of its functions.

An adapter (`outside.adapters`) says which ones: `replace` puts a function of ours where the peer's
was, before its tests are imported. A test that reached one is a test of simcore; any other test is
one of the peer's own code, and says nothing of simcore.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
from collections import defaultdict
from pathlib import Path

import pytest
import torch

RESULTS, PEER = "OUTSIDE_RESULTS", "OUTSIDE_PEER"  # in the environment of the process
_reached: dict[str, set[str]] = defaultdict(set)  # the functions by test
_running: list[str] = []
_outcomes: dict[str, dict[str, object]] = {}


class Unmapped(Exception):
    """The arguments ask for something that simcore does not have: the peer answers itself."""


def replace(*places):
    """Put a function in the place of a peer's, named ``package.module:function``.

    The function receives the peer's own function, and then the arguments.
    """

    def put(ours):
        for place in places:
            module_name, _, path = place.partition(":")
            *owners, name = path.split(".")
            owner = functools.reduce(getattr, owners, importlib.import_module(module_name))
            setattr(owner, name, _answered_by(ours, getattr(owner, name), path))
        return ours

    return put


def _answered_by(ours, original, name):
    @functools.wraps(original)
    def answer(*args, **kwargs):
        try:
            value = ours(original, *args, **kwargs)
        except Unmapped:
            return original(*args, **kwargs)
        except Exception:
            _reach(name)
            raise
        _reach(name)
        return value

    return answer


def _reach(name):
    if _running:
        _reached[_running[-1]].add(name)


def pytest_configure():
    importlib.import_module(f"outside.adapters.{os.environ[PEER]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    _running.append(item.nodeid)
    torch.manual_seed(0)  # many tests draw their layers, and few of them say how
    try:
        return (yield)
    finally:
        _running.pop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call" or report.outcome != "passed":
        error = "" if call.excinfo is None else call.excinfo.exconly().partition("\n")[0]
        _outcomes[item.nodeid] = {"outcome": report.outcome, "error": error}
    return report


def pytest_sessionfinish():
    tests = [
        {"test": test, **outcome, "reached": sorted(_reached[test])}
        for test, outcome in _outcomes.items()
    ]
    Path(os.environ[RESULTS]).write_text(json.dumps(tests, indent=1))
