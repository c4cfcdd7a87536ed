"""What a release says of itself in several files is the same in all of them."""

import re
import tomllib
from pathlib import Path

import yaml

import simcore

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_every_file_names_the_same_version_and_day():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest[1] == citation["version"] == simcore.__version__ == VERSION
    assert newest[2] == citation["date-released"]


def test_workflows_call_targets_of_make():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    called = []
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(workflow.read_text())["jobs"].values():
            called += [step["run"] for step in job["steps"] if "run" in step]
    assert {"make lint", "make test", "make docs", "make test-wheel"} <= set(called)
    assert {line.removeprefix("make ").partition(" ")[0] for line in called} <= targets
