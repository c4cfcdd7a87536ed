"""What a release says of itself in several files is the same in all of them."""

import re
import runpy
import tomllib
from pathlib import Path

import yaml
from packaging.specifiers import SpecifierSet

import simcore

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PYPROJECT["project"]["version"]


def test_every_file_names_the_same_version_and_day():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest[1] == citation["version"] == simcore.__version__ == VERSION
    assert newest[2] == citation.get("date-released", "unreleased")


def test_the_citation_has_the_keywords_and_the_address_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["keywords"] == PYPROJECT["project"]["keywords"]
    assert citation.get("repository-code", "") == PYPROJECT["tool"]["simcore"]["repository"]


def test_links_of_the_package_index_lead_into_the_repository():
    setup = runpy.run_path(str(ROOT / "setup.py"))
    readme = (ROOT / "README.md").read_text()
    place = setup["PYPROJECT"]["tool"]["simcore"]
    place["repository"] = ""
    assert (setup["links"]()["long_description"], setup["links"]()["project_urls"]) == (readme, {})
    address = place["repository"] = "https://host.example/owner/name"
    made = setup["links"]()
    ends = re.compile(r"\]\(([^)\s]*)\)")
    before, after = ends.findall(readme), ends.findall(made["long_description"])
    relative = [end for end in before if not end.startswith("https:")]
    assert len(relative) > 15
    assert [end for end in after if not end.startswith("https:")] == []
    inside = {end.removeprefix(address) for end in after if end.startswith(address)}
    (picture,) = re.findall(r"!\[.*\]\((.*)\)", readme)
    assert inside == {
        f"/{'raw' if end == picture else 'blob'}/v{VERSION}/{end}" for end in relative
    }
    assert ends.sub("", readme) == ends.sub("", made["long_description"])
    files = [url.partition(f"/blob/v{VERSION}/")[2] for url in made["project_urls"].values()]
    assert all((ROOT / file).exists() for file in files)
    assert {"Source", "Documentation", "Changelog", "Issues"} == {*made["project_urls"]}


def test_workflows_call_targets_of_make():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    called = []
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(workflow.read_text())["jobs"].values():
            called += [step["run"] for step in job["steps"] if "run" in step]
    assert all(line.startswith("make ") for line in called)
    named = {line.split()[1] for line in called}
    assert {"lint", "test", "docs", "test-wheel", "wheel"} <= named <= targets


def test_wheels_are_tested_with_every_python_that_simcore_names():
    """Every one from the oldest that pip takes on: a gap would be a Python that nobody tests."""
    wheels = PYPROJECT["tool"]["cibuildwheel"]
    tested = [text.removeprefix("cp3").removesuffix("-*") for text in wheels["build"]]
    named = [
        text.rpartition(" 3.")[2]
        for text in PYPROJECT["project"]["classifiers"]
        if ":: Python ::" in text
    ]
    assert tested == named
    (made,) = re.findall(r"^EVERY_PYTHON := (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert made.split() == [f"python3.{minor}" for minor in named]
    taken = SpecifierSet(PYPROJECT["project"]["requires-python"])
    assert [minor for minor in range(int(named[-1]) + 1) if f"3.{minor}" in taken] == [
        int(minor) for minor in named
    ]


def test_every_build_of_the_wheel_leaves_the_kernels_of_cuda_out():
    """They are the wheel simcore-cuda; nvcc beside a GPU would put them in."""
    made = re.search(r"^\t(.*)python -m build ", (ROOT / "Makefile").read_text(), re.M)
    recipe = yaml.safe_load((ROOT / "tools" / "recipe.yaml").read_text())["build"]["script"]
    assert made[1].strip() == recipe.split()[0] == "SIMCORE_CUDA=0"
    assert PYPROJECT["tool"]["cibuildwheel"]["environment"] == {"SIMCORE_CUDA": "0"}


def test_the_recipe_for_conda_asks_for_what_a_wheel_asks_for():
    recipe = yaml.safe_load((ROOT / "tools" / "recipe.yaml").read_text())["requirements"]
    wanted = [
        text.replace("torch>=", "pytorch >=") for text in PYPROJECT["project"]["dependencies"]
    ]
    python = f"python {PYPROJECT['project']['requires-python']}"
    assert recipe["run"] == [python, *wanted]
    assert python in recipe["host"]
