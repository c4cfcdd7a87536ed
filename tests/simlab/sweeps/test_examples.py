"""The sweep files of the papers: planned without a network, with every figure's jobs."""

import socket
from pathlib import Path

import pytest

from simlab import Sweep

FILES = Path(__file__).parents[3] / "examples" / "sweeps"
COUNTS = {
    "phang2021": {"finetune": 72, "extract": 108, "truncate": 72, "skip": 72, "grid": 288},
    "phang2021-offline": {"finetune": 10, "extract": 12, "truncate": 10, "skip": 10, "grid": 44},
    "wu2020": {"finetune": 40, "extract": 37, "grid": 49, "freeze": 8, "localize": 2},
    "wu2020-offline": {"finetune": 30, "extract": 15, "grid": 18, "freeze": 2, "localize": 1},
    "ren2023": {"finetune": 75, "extract": 450, "align": 852, "inject": 24, "complexity": 300},
    "ren2023-offline": {
        "pretrain": 25,
        "finetune": 25,
        "extract": 200,
        "inject": 8,
        "complexity": 100,
    },
}


@pytest.fixture
def no_network(monkeypatch):
    """Refuse every connection."""

    def refuse(*_):
        raise AssertionError("planning must not use the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def test_every_file_is_tested():
    assert {file.stem for file in FILES.glob("*.toml")} == COUNTS.keys()


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_a_paper_is_planned_without_a_network(name, no_network):
    counts = Sweep.from_file(FILES / f"{name}.toml").plan().counts()
    assert {kind: counts[kind] for kind in COUNTS[name]} == COUNTS[name]


def test_the_papers_choices_reach_the_jobs():
    jobs = Sweep.from_file(FILES / "phang2021.toml").plan().jobs
    tuned = next(job for job in jobs if job.kind == "finetune")
    assert tuned.params["recipe"]["max_steps"] == 10_000
    cut = next(job for job in jobs if job.kind == "truncate")
    assert cut.params["options"]["modes"] == ("untuned", "tuned", "tuned-orig")
    assert cut.params["options"]["recipe"]["learning_rate"] == 1e-5
    jobs = Sweep.from_file(FILES / "wu2020.toml").plan().jobs
    scored = next(j for j in jobs if j.kind == "grid" and j.params["measure"] == "svcca")
    options = {"causal": False, "standardize": True, "truncation": 0.99, "top_k": None}
    assert scored.params["options"] == options
    read = next(job for job in jobs if job.kind == "extract")
    assert (read.params["options"]["split"], read.params["options"]["words"]) == ("all", "spaces")
