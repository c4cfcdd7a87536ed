"""A sweep whose hub has gone: what its first run brought serves the next ones."""

import subprocess
import sys

import pytest

from support.hubserver import Hub
from support.lab.hubs import environment, publish, publish_data

STUDY = """
models = ["a/bert-seed_{{0..1}}"]
tasks = ["rte"]
extract = {{ kind = {kind} }}
grids = {{ measure = {measure} }}
"""


@pytest.fixture
def run(tmp_path):
    """Run a sweep in one folder, each time in a process of its own; return its first line."""

    def run_sweep(hub, kind, measure, **more):
        file = tmp_path / "study.toml"
        file.write_text(STUDY.format(kind=kind, measure=measure))
        command = ("sweep", str(file), "--out", str(tmp_path / "out"), "--no-figures")
        done = subprocess.run(
            [sys.executable, "-m", "simlab.cli", *command],
            env=environment(hub, tmp_path / "home", **more),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run_sweep


@pytest.mark.slow
def test_other_rows_and_grids_need_no_hub(run, tmp_path, tiny_bert):
    hub = Hub(tmp_path / "hub")
    for number in (0, 1):
        publish(hub, f"a/bert-seed_{number}", tiny_bert.path)
    publish_data(hub, "nyu-mll/glue", "rte", "rte")
    with hub.running():
        assert "jobs done" in run(hub, ["mean"], ["cka"])
    for offline, kind, measure in (("0", "cls", "procrustes"), ("1", "mean-all", "cca")):
        assert "jobs done" in run(hub, ["mean", kind], ["cka", measure], HF_HUB_OFFLINE=offline)
