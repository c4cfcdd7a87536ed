"""Programs in copies of a prepared process (`support.forks`)."""

import os

import pytest

from support.forks import in_fork

MB = 2**20


def test_every_program_starts_afresh():
    """In a process of its own, with the modules and nothing else."""
    program = "import os, sys, json; print(json.loads('[1]'), os.getpid()); json.seen = 1"
    outputs = [in_fork(program, modules="json").split() for _ in range(2)]
    assert outputs[0][0] == outputs[1][0] == "[1]"
    assert len({outputs[0][1], outputs[1][1], str(os.getpid())}) == 3
    assert in_fork("import json; print('seen' in vars(json))", modules="json").strip() == "False"


def test_a_failing_program_is_reported_and_stops_no_other():
    with pytest.raises(RuntimeError, match=r"status 1(.|\n)*ZeroDivisionError"):
        in_fork("1 / 0", modules="json")
    with pytest.raises(RuntimeError, match="status 3"):
        in_fork("raise SystemExit(3)", modules="json")
    with pytest.raises(RuntimeError, match="status -9"):
        in_fork("import os; os.kill(os.getpid(), 9)", modules="json")
    assert in_fork("print(7)", modules="json") == "7\n"


def test_a_program_that_hangs_is_stopped():
    with pytest.raises(RuntimeError, match="status -14"):
        in_fork("while True: pass", modules="json", timeout=1)


def test_a_copy_has_the_memory_of_a_fresh_process():
    """What an earlier program took is not there any more, and what is taken is seen."""
    program = (
        "import numpy as np; from bench.peak import peak_during;"
        f"print(peak_during(lambda: np.ones({64 * MB}, dtype=np.uint8)))"
    )
    for _ in range(2):
        assert 60 * MB < int(in_fork(program, modules="numpy")) < 80 * MB
