"""The form of pure torch: the same operators, and what `simcore._pure` gives for `simcore._C`."""

import json

import pytest
import torch

from simcore import _C, _pure, plan_cka
from simcore._extension import PURE
from simcore._ops import hsic_plan
from support.operators import defined_operators
from support.processes import python

GIB = 2**30
# Types as Python knows them: the compiled schemas say int where a signature gives SymInt.
SCHEMAS = """
import torch
def schemas():
    named = (s for s in torch._C._jit_get_all_schemas() if s.name.startswith("simcore::"))
    return {
        s.name: [
            [*((a.name, str(a.type), a.default_value) for a in s.arguments)],
            [*(str(r.type) for r in s.returns)],
        ]
        for s in named
    }
"""
IN_PURE = f"""
{SCHEMAS}
import json, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import simcore
    from simcore import cka_grid
    cka_grid(torch.randn(2, 9, 3))
print(json.dumps([schemas(), [str(w.message) for w in caught], simcore.build_info()]))
"""


@pytest.fixture(scope="module")
def pure():
    """Return schemas, warnings and build of a process in which nothing compiled is used."""
    return json.loads(python("-c", IN_PURE, SIMCORE_PURE="1").stdout)


@pytest.mark.skipif(PURE, reason="the form of pure torch: nothing compiled to compare with")
def test_the_operators_have_the_signatures_of_the_compiled_ones(pure):
    known = {}
    exec(SCHEMAS, known)
    compiled = json.loads(json.dumps(known["schemas"]()))
    names = {f"simcore::{name}" for name in defined_operators()}
    assert names <= pure[0].keys()
    assert {name: pure[0][name] for name in names} == {name: compiled[name] for name in names}


def test_one_line_says_that_torch_computes_and_what_to_do(pure):
    (line,) = pure[1]
    assert "computing with torch's operations" in line
    assert line.endswith("SIMCORE_PURE=1 hides the compiled operators; unset it")
    assert pure[2]["cpu_isa"] == "torch"


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("of_y", [[], [5, 300]])
@pytest.mark.parametrize("n", [10, 9000])
def test_costs_are_those_of_the_compiled_plan(n, of_y, kernel):
    x, y = ([torch.zeros(1, 1).expand(n, p) for p in widths] for widths in ([7, 64, 1], of_y))
    plan = plan_cka(x, y or None, kernel=kernel)
    assert hsic_plan.flops(n, [7, 64, 1], of_y, kernel) == (plan.flops_gram, plan.flops_feature)


def lay(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return _pure.free_memory(str(root))


def test_free_memory_is_the_least_of_the_machine_and_of_its_groups(tmp_path):
    machine = f"MemFree: 1 kB\nMemAvailable: {8 * 2**20} kB\n"
    assert lay(tmp_path, {"proc/meminfo": machine}) == 8 * GIB
    group = "sys/fs/cgroup/a/b/"
    files = {"proc/self/cgroup": "0::/a/b\n", f"{group}memory.max": f"{4 * GIB}\n"}
    files |= {f"{group}memory.current": f"{3 * GIB}\n", "sys/fs/cgroup/a/memory.max": "max\n"}
    assert lay(tmp_path, files) == GIB
    assert lay(tmp_path, {f"{group}memory.stat": f"file 9\ninactive_file {GIB}\n"}) == 2 * GIB
    assert lay(tmp_path, {"sys/fs/cgroup/a/memory.max": f"{GIB}\n"}) == GIB
    older = {"proc/self/cgroup": "4:cpu,memory:/c\n"}
    older["sys/fs/cgroup/memory/c/memory.limit_in_bytes"] = f"{3 * GIB}\n"
    assert lay(tmp_path, older) == 3 * GIB


def test_free_memory_is_what_the_compiled_module_finds():
    assert abs(_pure.free_memory() - _C.free_memory()) < GIB  # other processes come and go
