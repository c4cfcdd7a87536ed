"""`import simcore` needs torch and numpy, and nothing else, and starts nothing."""

import ast
import sys
from pathlib import Path

import pytest

from support.processes import python

BLOCKED = (
    "transformers", "datasets", "accelerate", "safetensors", "tokenizers", "huggingface_hub",
    "scipy", "sklearn", "pandas", "pyarrow", "xarray", "matplotlib", "rich", "tqdm", "typer",
    "pydantic", "ray", "psutil", "pytest", "hypothesis", "simlab",
)  # fmt: skip

PROGRAM = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"blocked: {{name}}", name=name)

sys.meta_path.insert(0, Blocked())
{body}
"""


def run(body, blocked=BLOCKED):
    program = PROGRAM.format(blocked=set(blocked), body=body)
    return python("-c", program, ok=False)


def test_the_block_works():
    done = run("import scipy")
    assert done.returncode != 0
    assert "blocked: scipy" in done.stderr
    assert run("import numpy").returncode == 0


def test_works_with_torch_and_numpy_alone():
    """An import loads the operators alone: other modules take most of its time."""
    done = run("""
import sys
import numpy as np
import torch
before = {*sys.modules}
import simcore
dir(simcore)
more = {*sys.modules} - before
rooms = {name.split(".")[1] for name in more if name.startswith("simcore.")}
assert rooms == {"_C", "_extension", "_grid", "_kernels", "_ops"}, rooms
heavy = {"numpy.random", "statistics", "torch._dynamo", "torch._inductor"}
assert not heavy & more, heavy & more
assert not torch.cuda.is_initialized()
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"simlab", "transformers", "datasets", "scipy", "pandas"}, loaded

import simcore.reference
x = np.random.default_rng(0).standard_normal((3, 20, 5))
for kernel in ("linear", "rbf"):
    want = simcore.reference.cka_grid(x, kernel=kernel)
    assert np.allclose(simcore.cka_grid(x, kernel=kernel, progress=True), want)
metric = simcore.MinibatchCKA()
metric.update(x)
metric.compute()
simcore.plan_cka(x)
""")
    assert done.returncode == 0, done.stderr
    assert "100%" in done.stderr


def test_the_twin_needs_numpy_alone():
    """With an empty package in simcore's place: nothing compiled may be behind it."""
    done = run(
        """
import importlib.util
import sys
import types
empty = types.ModuleType("simcore")
empty.__path__ = importlib.util.find_spec("simcore").submodule_search_locations
sys.modules["simcore"] = empty
from simcore import reference
import numpy as np
reference.cka_grid(np.random.default_rng(0).standard_normal((2, 8, 3)))
""",
        (*BLOCKED, "torch"),
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.deep
def test_a_name_is_found_where_its_first_use_is_compiled():
    done = run(
        """
import simcore
import torch
layers = [torch.randn(20, 5) for _ in range(3)]
compiled = torch.compile(lambda x: simcore.cka_grid(x) + 1, backend="eager", fullgraph=True)
assert "cka_grid" not in vars(simcore)
assert torch.equal(compiled(layers), simcore.cka_grid(layers) + 1)
assert "cka_grid" in vars(simcore)
""",
        (),
    )
    assert done.returncode == 0, done.stderr


def test_public_names():
    import simcore

    assert set(simcore.__all__) >= {
        "MinibatchCKA", "build_info", "cka_grid", "hsic_grid", "plan_cka"
    }  # fmt: skip
    assert set(simcore.__all__) <= set(dir(simcore))
    for name in simcore.__all__:
        assert hasattr(simcore, name)
    assert "torchvision" not in sys.modules
    with pytest.raises(AttributeError, match="no attribute 'cka_gird'"):
        simcore.cka_gird  # noqa: B018


def test_type_checkers_see_what_is_found():
    import simcore

    tree = ast.parse(Path(simcore.__file__).read_text())
    seen = {
        alias.asname: node.module
        for block in tree.body
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name)
        for node in block.body
        for alias in node.names
    }
    found = {name: f"simcore.{place}" for name, place in simcore._PLACES.items()}
    modules = dict.fromkeys(("align", "nn", "stats", "testing"), "simcore")
    assert seen == found | modules | {"measures": "simcore.measures"}
