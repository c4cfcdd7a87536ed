"""A sweep that dies before any operation on a file, and is repeated, has the same bits."""

import os
import subprocess
import sys

import pytest


def killed(folder, step):
    """Kill sweeps before every `step`-th operation; return their number, and what went wrong."""
    command = [sys.executable, "-m", "support.lab.kills", str(folder), str(step)]
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    most, *wrong = done.stdout.splitlines()
    return int(most), wrong


def test_some_kills(tmp_path):
    most, wrong = killed(tmp_path, 23)
    assert most > 100
    assert wrong == []


@pytest.mark.slow
def test_a_kill_before_each_operation(tmp_path):
    assert killed(tmp_path, 1)[1] == []
