"""The sweep files of the examples: planned without a network, with every figure's jobs."""

import hashlib
import json
import socket
from collections import defaultdict
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from simlab import Sweep
from simlab.errors import UserError
from simlab.experiments.options import InjectOptions, StudyOptions
from simlab.representations.kinds import ATTENTION
from simlab.results.results import ACROSS, ALIGNMENT, CHOSEN, INJECTION, WITHIN
from simlab.sweeps import plan as kinds

ROOT = Path(__file__).parents[3]
FILES = ROOT / "examples" / "sweeps"
ROWS = sorted((ROOT / "examples" / "studies" / "results").glob("*-offline.parquet"))
# Rows that were computed before their preset changed, and how the pages of results say so.
OLD = {
    "ren2023-offline": {
        "experiments.md": 'The rows are not under today\'s preset `paper = "ren2023"`',
        "claims.md": "The 25 small BERTs are not under today's preset of Ren et al.",
    }
}
# In the options of rows, and no choice of a protocol.
NO_CHOICE = {"rows", "head_x", "head_y", CHOSEN, "undefined"}
COUNTS = {
    "phang2021": {"finetune": 72, "extract": 108, "truncate": 72, "skip": 72, "grid": 288},
    "phang2021-offline": {"finetune": 10, "extract": 12, "truncate": 10, "skip": 10, "grid": 44},
    "wu2020": {"finetune": 40, "extract": 44, "import": 6, "grid": 53, "freeze": 8, "localize": 4},
    "phang2021-preset-offline": {
        **{"finetune": 4, "extract": 8, "truncate": 4, "skip": 4, "grid": 16, "blocks": 8}
    },
    "wu2020-offline": {"finetune": 3, "extract": 5, "grid": 12, "freeze": 1, "localize": 1},
    "ren2023": {"finetune": 75, "extract": 600, "align": 822, "inject": 24, "complexity": 300},
    "ren2023-offline": {
        "pretrain": 25,
        "finetune": 25,
        "extract": 200,
        "inject": 8,
        "complexity": 100,
    },
    "ren2023-trained-offline": {
        **{"pretrain": 5, "finetune": 5, "extract": 40, "align": 24, "inject": 20}
    },
    "two-architectures-offline": {
        **{"pretrain": 10, "finetune": 10, "extract": 40, "grid": 33, "localize": 3}
    },
    "training-run-offline": {"pretrain": 5, "extract": 100, "grid": 390},
}
# The beginning of a hash of the keys of all jobs. A folder continues as long as keys stay.
KEYS = {
    "phang2021-offline": "c6a68e9ba6bffd9a",
    "phang2021-preset-offline": "d2a6d73a6acb78cc",
    "phang2021": "7bbd2c31b1878819",
    "ren2023-offline": "098dc88952e85bbd",
    "ren2023-trained-offline": "13416422c1d4839a",
    "ren2023": "876135ba022650cf",
    "training-run-offline": "3f87a17fce4de9b5",
    "two-architectures-offline": "e2e28fb90b9621d5",
    "wu2020-offline": "a92d77b6d2cde4cb",
    "wu2020": "49086c020d2890af",
}


def write_wu_files(folder: Path) -> None:
    """Write both corpora, and files for the rows of three ELMos, of which planning reads bytes."""
    (folder / "ptb-dev.txt").write_text("Pierre joined the board .\nHe is old .\n")
    (folder / "en_ewt-ud-dev.conllu").write_text("1\tFrom\t_\n2\there\t_\n\n")
    for model in ("original", "4-layer", "transformer"):
        for corpus in ("ptb", "ewt"):
            (folder / f"elmo-{model}-{corpus}-dev.hdf5").write_bytes(b"layers")


@pytest.fixture(scope="module")
def plan_of(tmp_path_factory):
    """Plan a file, once, where every connection is refused and no model is in the cache.

    The files of sentences and of rows that are no part of the project are small.
    """

    def refuse(*_):
        raise AssertionError("planning must not use the network")

    folder = tmp_path_factory.mktemp("examples")
    write_wu_files(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "no cache"))
        patch.setattr(socket.socket, "connect", refuse)
        yield cache(lambda name: Sweep.from_file(FILES / f"{name}.toml").plan())


def test_every_file_is_tested():
    assert {file.stem for file in FILES.glob("*.toml")} == COUNTS.keys()


def test_a_missing_corpus_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_wu_files(tmp_path)
    (tmp_path / "ptb-dev.txt").unlink()
    with pytest.raises(UserError, match=r"ptb-dev.txt: wanted a file"):
        Sweep.from_file(FILES / "wu2020.toml").plan()


def test_ten_models_are_in_the_grids_of_all_and_seven_have_attention(plan_of):
    plan = plan_of("wu2020")
    sides = defaultdict(set)
    for job in plan.jobs:
        if job.kind == "grid" and job.params["comparison"] == "ORIG":
            labels = {side["label"] for side in job.params["x"]}
            sides[job.params["task"], job.params["measure"]] |= labels
    elmos = {"elmo-original-ORIG", "elmo-4-layer-ORIG", "elmo-transformer-ORIG"}
    for task in ("ptb-dev", "en_ewt-ud-dev"):
        for measure in ("neuronsim", "mixedsim", "pwcca"):
            assert len(sides[task, measure]) == 10
            assert elmos <= sides[task, measure]
    assert len(sides["ptb-dev", "attention-js"]) == 7
    assert not elmos & sides["ptb-dev", "attention-js"]


def test_each_panel_of_localization_has_the_company_of_the_paper(plan_of):
    plan = plan_of("wu2020")
    found = {
        (job.params["task"], plan.jobs[job.needs[0]].params["comparison"])
        for job in plan.jobs
        if job.kind == "localize" and job.params["standardize"]
    }
    families = ("bert-base ORIG + FT", "xlnet-base ORIG + FT")
    assert found == {(corpus, "ORIG") for corpus in ("ptb-dev", "en_ewt-ud-dev")} | {
        ("ptb-dev", family) for family in families
    }
    # The figures of fine-tuned models are of the first corpus alone, and the plan says so.
    assert plan.remarks() == [
        f"no joint grid {family} for en_ewt-ud-dev, whose word-last rows of stage ft are not "
        "extracted"
        for family in families
    ]


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_a_file_is_planned_without_a_network(name, plan_of):
    plan = plan_of(name)
    counts = plan.counts()
    assert {kind: counts[kind] for kind in COUNTS[name]} == COUNTS[name]
    keys = "\n".join(job.key for job in plan.jobs)
    assert hashlib.sha256(keys.encode()).hexdigest()[:16] == KEYS[name]


def test_the_papers_choices_reach_the_jobs(plan_of):
    jobs = plan_of("phang2021").jobs
    tuned = next(job for job in jobs if job.kind == "finetune")
    assert tuned.params["recipe"]["max_steps"] == 10_000
    cut = next(job for job in jobs if job.kind == "truncate")
    assert cut.params["options"]["modes"] == ("untuned", "tuned", "tuned-orig")
    assert cut.params["options"]["recipe"]["learning_rate"] == 1e-5
    jobs = plan_of("wu2020").jobs
    scored = next(j for j in jobs if j.kind == "grid" and j.params["measure"] == "svcca")
    options = {"causal": False, "standardize": True, "truncation": 0.99, "top_k": None}
    assert scored.params["options"] == options
    read = next(job for job in jobs if job.kind == "extract")
    assert (read.params["options"]["split"], read.params["options"]["words"]) == ("all", "spaces")


def protocol(*words, **choices):
    """What rows must have in common with the jobs of a plan, as text."""
    return json.dumps([*words, choices], sort_keys=True)


def of_alignment(job, plan):
    """The protocol of the rows of a job of maps."""
    kind = plan.jobs[job.needs[0]].params["options"]["kind"]
    part, name, method = (job.params[key] for key in ("part", "name", "method"))
    choices = StudyOptions(**job.params["options"]).protocol(part, method, job.params["judged"])
    if kind != ATTENTION:
        choices.pop("attention_rows", None)
    return protocol(part, name, kind, method=method, **choices)


def planned(plan):
    """The protocols of all rows of alignment and injection that a plan makes."""
    found = {of_alignment(job, plan) for job in plan.jobs if job.kind == kinds.ALIGN}
    for job in plan.jobs:
        if job.kind == kinds.INJECT:
            options = InjectOptions(**job.params["options"])
            for method in options.methods:
                choices = options.protocol(method)
                found.add(protocol(INJECTION, None, options.tokens, method=method, **choices))
    return found


def committed(path):
    """The protocols of all rows of alignment and injection of a results file."""
    rows = pd.read_parquet(path, columns=["experiment", "comparison", "kind", "options"])
    rows = rows[rows["experiment"].isin([ALIGNMENT, WITHIN, ACROSS, INJECTION])].drop_duplicates()
    return {
        protocol(
            experiment,
            None if experiment == INJECTION else comparison,
            kind,
            **{key: one for key, one in json.loads(options).items() if key not in NO_CHOICE},
        )
        for experiment, comparison, kind, options in rows.itertuples(index=False)
    }


@pytest.mark.parametrize("path", ROWS, ids=lambda path: path.stem)
def test_committed_rows_are_of_the_preset(path, plan_of):
    """Rows have the choices of their file under today's preset, or a page says that they do not."""
    rows = committed(path)
    today = planned(plan_of(path.stem))
    if path.stem not in OLD:
        assert rows == today
        return
    assert rows != today, "wanted no entry in OLD, and no words on the page"
    for page, words in OLD[path.stem].items():
        text = (ROOT / "docs" / "results" / page).read_text()
        assert words in " ".join(text.split())
