"""Grids in forked children of a process that has computed grids; in plain torch they would wait."""

import os
import subprocess
import sys

import pytest

from support.forks import ROOT

PROGRAM = """
import faulthandler, os, sys
import torch
import simcore
from support.measure_table import MEASURES

torch.manual_seed(0)
layers = [torch.randn(640, 64) for _ in range(2)]  # large enough for threads of torch

def compute():
    values = {"cka": simcore.cka_grid(layers)}
    return values | {measure.name: measure(layers) for measure in MEASURES}

torch.set_num_threads(2)
before = compute()
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(60, exit=True)  # says where the child waits
    after = compute()
    other = [k for k, value in before.items() if not torch.allclose(value, after[k], atol=1e-6)]
    print(torch.get_num_threads(), other, flush=True)
    os._exit(0)
_, status = os.waitpid(child, 0)
print(status, torch.get_num_threads())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="wants a system with fork")
def test_every_grid_works_in_a_child_of_a_process_that_has_computed_it():
    paths = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "1 []\n0 2\n", done.stderr
