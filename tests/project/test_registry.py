"""Every operator of csrc/torch/schema.cpp has what the schema promises, under its family's name."""

import ast
import functools
import importlib
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

import simcore
from bench import gpu_jobs, rows
from simcore._ops.devices import COMPOSED
from support.families import FAMILIES

assert simcore  # loads the extension
ROOT = Path(__file__).resolve().parent
while not (ROOT / "pyproject.toml").exists():
    ROOT = ROOT.parent
CSRC, TESTS = ROOT / "csrc", ROOT / "tests"
SOURCES = (".cpp", ".cu", ".h", ".cuh")
# The job of bench/ whose time is mostly the operator's, also of one that the schema lacks.
JOBS = {
    "hsic_terms": "cka13",
    "gram_terms": "cka13",
    "gram_power_sums": "moments13",
    "median_squared_distances": "moments_rbf13",
    "uniformity": "uniformity13",
    "mean_rows": "concentricity13",
    "row_pairs": "cosine13",
    "permuted_gram_products": "permutation13",
    "principal_components": "svcca13",
    "nuclear_norms": "cca13",
    "pwcca": "pwcca13",
    "aligned_cosines": "aligned_cosine13",
    "small_svd": "pwcca",  # of bench/gpu_jobs.py
    "best_partners": "neuronsim13",
    "multiple_correlations": "mixedsim13",
    "match_neurons": "hard_match13",
    "best_assignments": "hard_match13",
    "standardised_rows": "rsa13",
    "rank_moments": "rsa_spearman13",
    "nearest_rows": "mutual13",
    "list_similarity": "rank13",
    "second_order_similarity": "second_order13",
    "cknna_terms": "cknna13",
    "attention_similarity": "js12",
    "affine_coupling": "coupling",
    "affine_coupling_backward": "coupling",
}
# A plan is of the CPU's kernels; every other function takes layers of any device.
ON_CPU_ALONE = {("cka", "plan_cka")}


@dataclass
class Family:
    name: str
    twins: list[str]
    on_cuda: list[str]
    operators: list[str] = field(default_factory=list)


def parse_schema(text: str) -> list[Family]:
    """The families of schema.cpp, in order, with the operators defined below their lines."""
    heading = r"// ---- (?P<name>\w+)\. Twins: (?P<twins>[\w., ]+)\. On CUDA: (?P<cuda>[\w, ]+)\.\n"
    families: list[Family] = []
    for found in re.finditer(rf'{heading}|m\.def\(\s*"(?P<operator>\w+)\(', text):
        if found["operator"]:
            families[-1].operators.append(found["operator"])
            continue
        cuda = [] if found["cuda"] == "none" else found["cuda"].split(", ")
        families.append(Family(found["name"], found["twins"].split(", "), cuda))
    return families


REGISTRY = parse_schema((CSRC / "torch" / "schema.cpp").read_text())
OPERATORS = [(family, operator) for family in REGISTRY for operator in family.operators]
each_family = pytest.mark.parametrize("family", REGISTRY, ids=lambda f: f.name)
each_operator = pytest.mark.parametrize(
    "family, operator", OPERATORS, ids=[o for _, o in OPERATORS]
)


def text_of(folder: Path) -> str:
    files = sorted(f for f in folder.rglob("*") if f.suffix in SOURCES)
    return "\n".join(f.read_text() for f in files)


def implemented_in(file: Path) -> set[str]:
    text = file.read_text() if file.exists() else ""
    return set(re.findall(r'm\.impl\(\s*"(\w+)"', text))


@functools.cache
def words_of_tests() -> set[str]:
    """Every word of the tests, in Python and C++, but for this file's."""
    files = {f for f in TESTS.rglob("test_*") if f.suffix in (".py", ".cpp")}
    files.remove(Path(__file__).resolve())
    return {word for file in files for word in re.findall(r"\w+", file.read_text())}


def functions_of(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_schema_lists_the_families_and_every_operator():
    assert tuple(family.name for family in REGISTRY) == FAMILIES
    assert set(JOBS) == {*(operator for _, operator in OPERATORS), *COMPOSED}
    defined = {s.name for s in torch._C._jit_get_all_schemas() if s.name.startswith("simcore::")}
    assert {f"simcore::{operator}" for _, operator in OPERATORS} <= defined


@each_family
def test_a_family_has_its_files(family):
    name, rooms = family.name, {"cpu": True, "cuda": bool(family.on_cuda)}
    for device, wanted in rooms.items():
        adapter = CSRC / "torch" / f"{name}_{device}.cpp"
        assert adapter.exists() == wanted, f"{adapter}: the schema promises {wanted}"
        kernels = CSRC / device / name
        assert kernels.is_dir() == wanted, f"{kernels}: the schema promises {wanted}"
        if wanted:
            assert f'#include "{device}/{name}/' in adapter.read_text()
            tests = [f for f in TESTS.rglob("*.cpp") if f"{device}/{name}/" in f.read_text()]
            assert tests, f"no C++ test includes {device}/{name}/"
    assert implemented_in(CSRC / "torch" / f"{name}_cuda.cpp") == set(family.on_cuda)
    assert (ROOT / "simcore" / "_ops" / f"{name}.py").exists()


@each_family
def test_a_family_has_its_twins(family):
    files = [ROOT / "simcore" / "reference" / twin for twin in family.twins]
    missing = [file.name for file in files if not file.exists()]
    assert not missing
    kernels = text_of(CSRC / "cpu" / family.name) + text_of(CSRC / "cuda" / family.name)
    for twin in family.twins:
        assert f"simcore/reference/{twin}" in kernels, f"no kernel of {family.name} names {twin}"


def test_twins_that_sources_name_exist():
    named = re.findall(r"simcore/reference/(\w+\.py)(?::(\w+(?:, \w+)*))?", text_of(CSRC))
    assert len(named) > len(FAMILIES)
    for file, functions in named:
        known = functions_of(ROOT / "simcore" / "reference" / file)
        assert not set(filter(None, functions.split(", "))) - known, f"{file} has no {functions}"


@each_operator
def test_an_operator_is_implemented_in_its_family_alone(family, operator):
    adapters = sorted((CSRC / "torch").rglob("*.cpp"))
    found = {file.name for file in adapters if operator in implemented_in(file)}
    own = {f"{family.name}_{kind}.cpp" for kind in ("cpu", "cuda", "autograd")}
    assert found, f"no implementation of {operator}"
    assert found <= own
    on_cpu = f"{family.name}_cpu.cpp" in found
    assert on_cpu or operator in family.on_cuda
    name = f"simcore::{operator}"
    assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU") == on_cpu


@each_operator
def test_an_operator_has_a_fake_kernel_in_its_family(family, operator):
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"simcore::{operator}", "Meta")
    module = importlib.import_module(f"simcore._ops.{family.name}")
    assert getattr(module, operator) is getattr(torch.ops.simcore, operator)
    source = Path(module.__file__).read_text()
    assert f"@operator\ndef {operator}(" in source


@pytest.mark.parametrize("operator", JOBS)
def test_an_operator_has_a_test_and_a_bench_row(operator):
    assert operator in words_of_tests(), f"no test names {operator}"
    assert JOBS[operator] in {*rows.jobs(), *gpu_jobs.JOBS}


def callers_of(name: str) -> set[tuple[str, str]]:
    """The module and the function of every call of ``name`` in simcore."""
    found = set()
    for file in (ROOT / "simcore").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == name
                for call in ast.walk(node)
            ):
                found.add((file.stem, node.name))
    return found


def test_no_other_function_refuses_cuda():
    assert callers_of("check_on_cpu") == ON_CPU_ALONE


def test_a_promise_that_is_not_kept_is_seen():
    text = '// ---- a. Twins: b.py. On CUDA: none.\nm.def("c(Tensor x) -> Tensor");\n'
    (family,) = parse_schema(text)
    assert family == Family("a", ["b.py"], [], ["c"])
    for check in (test_a_family_has_its_files, test_a_family_has_its_twins):
        with pytest.raises(AssertionError):
            check(family)
    with pytest.raises(AssertionError):
        test_an_operator_is_implemented_in_its_family_alone(family, "c")
    with pytest.raises((AssertionError, RuntimeError)):
        test_an_operator_has_a_fake_kernel_in_its_family(family, "c")
