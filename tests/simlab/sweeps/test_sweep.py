"""Whole sweeps of tiny models: every kind of job, the results, the figures, the commands."""

import json

import numpy as np
import pandas as pd
import pytest

from simlab import Sweep, extract, grid, read_results
from simlab.experiments.truncate import tfidf_rows
from simlab.figures.table import without_copies
from simlab.report.gather import gather
from simlab.report.write import folders_of, jobs, statuses
from simlab.results.reading import read_table
from simlab.results.results import (
    BASELINE,
    COLUMNS,
    LOCALIZATION,
    MAJORITY,
    STATISTICS,
    TFIDF,
)
from simlab.results.results import JOINT as JOINT_GRID
from simlab.store.files import write_json
from simlab.sweeps import comparisons
from simlab.sweeps import status as status_module
from simlab.sweeps import sweep as sweep_module
from simlab.tasks import TaskOptions, load_task
from support.lab.inline import Inline
from support.lab.pages import Parts

WORDS = ("done", "waiting", "failed")
JOINT = ["neuronsim", "svcca"]
LABEL = {"label_column": "verdict"}


def run(sweep, out, figures=False):
    """Run a sweep in this process."""
    return sweep.run(out, engine=Inline(), durable=False, figures=figures)


@pytest.fixture(scope="module")
def content(tiny_bert, reviews):
    """A file that asks for every kind of job."""
    return {
        "models": [{"name": str(tiny_bert.path), "label": "tiny"}],
        "tasks": [{"name": str(reviews), "text_column": "body", "heldout_size": 80, **LABEL}],
        "finetune": {"max_steps": 3, "seeds": "1..2"},
        "extract": {"kind": ["cls", "mean"]},
        "grids": [
            {"measure": "cka", "estimator": "biased", "kind": "cls", "bootstrap": 4},
            {"measure": JOINT, "between": "joint", "kind": "mean", "truncation": None},
        ],
        "truncate": True,
        "skip": True,
        "inject": {"methods": ["itself", "identity"], "directions": "one"},
        "align": {"methods": "cca", "kind": "mean", "directions": "one"},
        "freeze": {"bottom": 1},
        "baselines": True,
        "localize": True,
        "blocks": {"permutations": 20},
        "complexity": {"kind": "cls"},
        "figures": {"formats": "svg"},
    }


@pytest.fixture(scope="module")
def done(content, tmp_path_factory):
    """The folder of a finished sweep, and what the run reported."""
    out = tmp_path_factory.mktemp("sweep") / "out"
    sweep = Sweep(content)
    return sweep, out, run(sweep, out, figures=True)


def test_every_job_is_done(done):
    sweep, out, report = done
    assert report.failed == ()
    assert report.done == sweep.plan().counts()
    assert [job.key for job in Sweep.open(out).plan().jobs] == [j.key for j in sweep.plan().jobs]
    status = sweep.status(out).total
    assert (status.running, status.waiting) == (0, 0)


def test_baselines_are_scored_on_the_same_rows(done, reviews):
    sweep, out, _ = done
    options = TaskOptions(text_column="body", label_column="verdict", heldout_size=80)
    wanted = tfidf_rows(load_task(str(reviews), options))
    frame = sweep.results(out)
    scores = frame[frame["experiment"] == BASELINE]
    found = scores[scores["label_x"] == TFIDF]
    assert [*found["value"]] == [row.value for row in wanted]
    (random,) = scores[scores["label_x"] == "tiny from random weights"].itertuples()
    assert (random.seed_x, random.n, random.stage_x) == (1, 80, "ft")
    assert pd.isna(random.base_x)  # as of every baseline
    assert MAJORITY in set(scores["label_x"])


def test_the_page_finds_what_is_done(done):
    _, out, _ = done
    (found,) = statuses(folders_of([out / "results"]))
    assert found["folder"] == out.name
    shown = jobs(folders_of([out / "results"]))
    made = [job for job in Sweep.open(out).plan().jobs if job.kind in ("finetune", "extract")]
    order = [f"{out.name}/{job.kind}/{job.key[:12]}" for job in made]
    assert [job["path"] for job in shown if job["path"] in order] == order
    names = {job["path"]: job["name"] for job in shown}
    assert [names[path] for path in order] == [f"{job.kind} {job.title}" for job in made]
    page = gather(without_copies(read_table(out / "results")))
    assert [model["name"] for model in page.models] == ["tiny-ORIG", "tiny-FT[1]", "tiny-FT[2]"]
    grids = [grid["comparison"] for grid in page.grids if grid["setting"] == 0]
    assert grids[:3] == ["ORIG-ORIG", "FT-FT", "FT-ORIG"]
    assert found["kinds"]["finetune"]["done"] >= 2
    assert {
        kind: count["waiting"] for kind, count in found["kinds"].items() if count["waiting"]
    } == {}
    assert (found["failed"], found["error"]) == ([], "")


def test_results_are_one_data_set_that_others_read(done):
    sweep, out, _ = done
    frame = sweep.results(out)
    assert tuple(frame.columns) == COLUMNS
    order = list(COLUMNS)
    plain = pd.read_parquet(out / "results")
    assert len(plain) == len(frame)
    assert set(plain.columns) == {*COLUMNS, "job"}
    read = read_results(out / "results")
    by = [name for name in order if name not in (*STATISTICS, "resampling")]
    left, right = (f[order].sort_values(by, ignore_index=True) for f in (frame, read))
    pd.testing.assert_frame_equal(left, right)
    grids = frame[frame["comparison"].eq("FT-FT") & frame["seed_x"].eq(1)]
    assert grids.pivot(index="layer_x", columns="layer_y", values="value").shape == (4, 4)
    joint = frame[frame["comparison"].eq("ORIG + FT")]
    assert set(joint["experiment"]) == {JOINT_GRID, LOCALIZATION}
    assert joint.groupby("measure")["grid"].nunique().eq(1).all()


def test_figures_are_drawn(done):
    _, out, report = done
    names = {file.name for file in report.figures}
    assert {"reviews-truncation.svg", "reviews-skipping.svg", "reviews-models.svg"} <= names
    assert all(file.parent == out / "figures" for file in report.figures)


def test_nothing_is_done_or_drawn_again(done):
    sweep, out, report = done
    before = {file: file.stat().st_mtime_ns for file in report.figures}
    again = run(sweep, out, figures=True)
    assert not again.done
    assert {file: file.stat().st_mtime_ns for file in again.figures} == before


def test_a_larger_question_keeps_the_answers(done, content, tmp_path):
    _, out, _ = done
    larger = {**content, "grids": [*content["grids"], {"measure": "rsa", "kind": "cls"}]}
    sweep = Sweep(larger)
    report = run(sweep, out)
    assert set(report.done) == {"grid", "blocks"}
    assert "rsa" in set(sweep.results(out)["measure"])
    back = run(Sweep(content), out)
    assert not back.done
    assert "rsa" not in set(pd.read_parquet(out / "results")["measure"])
    again = run(sweep, out)
    assert not again.done  # the rows were set aside
    assert "rsa" in set(pd.read_parquet(out / "results")["measure"])
    run(Sweep(content), out)


def test_tiles_of_a_joint_grid_have_its_values(done, content, tmp_path, monkeypatch):
    sweep, out, _ = done
    monkeypatch.setattr(comparisons, "TILE", dict.fromkeys(comparisons.TILE, 1))
    few = {name: content[name] for name in ("models", "tasks", "finetune", "extract", "grids")}
    tiled = Sweep(few)
    tiles = [job for job in tiled.plan().jobs if job.kind == "grid" and job.params["joint"]]
    assert len(tiles) == 2 * 6
    assert tiled.plan().counts()["bases"] == 3  # svcca decomposes layers
    run(tiled, out)
    assert not list((out / "objects" / "bases").rglob("object.json"))  # nothing needs them
    assert run(tiled, out).done == {}
    both = []
    for one in (sweep, tiled):
        run(one, out)
        frame = one.results(out)
        frame = frame[frame["comparison"].eq("ORIG + FT") & frame["experiment"].eq(JOINT_GRID)]
        both.append(
            frame.set_index(["measure", "label_x", "layer_x", "label_y", "layer_y"])["value"]
        )
    whole, parts = both
    assert len(whole) == len(parts) == 2 * 12 * 12
    assert whole.index.is_unique
    parts = parts.loc[whole.index]
    np.testing.assert_allclose(parts.astype(float), whole.astype(float), rtol=1e-4, atol=1e-6)


def test_two_runs_have_the_same_bits(content, tmp_path):
    """Sources of models made in a sweep seed random baselines and stand in manifests."""
    few = {name: content[name] for name in ("models", "tasks")}
    methods = ["random-labels", "random-classifier", "random-embeddings"]
    sweep = Sweep(
        {
            **few,
            "finetune": {"max_steps": 1, "seeds": "1..2"},
            "grids": {"estimator": "biased"},
            "inject": {"methods": methods, "directions": "one"},
        }
    )
    found = []
    for name in ("a", "b"):
        out = tmp_path / name
        assert run(sweep, out).failed == ()
        files = [*out.rglob("manifest.json"), *out.rglob("*.safetensors")]
        found.append({file.relative_to(out): file.read_bytes() for file in files})
    first, second = (sweep.results(tmp_path / name) for name in ("a", "b"))
    pd.testing.assert_frame_equal(first, second)
    assert set(first["comparison"].fillna(first["experiment"])) >= {"injection", "FT-FT"}
    assert found[0].keys() == found[1].keys()
    assert [file for file in found[0] if found[0][file] != found[1][file]] == []
    assert len(found[0]) == 2 + 2 * 3


def test_models_of_all_tasks_and_random_twins_read_one_corpus(content, tmp_path):
    corpus = {"name": content["tasks"][0]["name"], "text_column": "body"}
    few = {name: content[name] for name in ("models", "tasks")}
    sweep = Sweep(
        {
            **few,
            "finetune": {"max_steps": 1},
            "extract": {
                "on": corpus,
                "kind": "mean",
                "limit": 12,
                "stages": ["orig", "ft", "random"],
                "dtype": "float16",
            },
            "grids": {
                "estimator": "biased",
                "between": "joint",
                "stages": ["orig", "ft", "random"],
            },
        }
    )
    report = run(sweep, tmp_path / "out")
    assert report.failed == ()
    frame = sweep.results(tmp_path / "out")
    joint = frame[frame["measure"] == "cka"]
    names = ["tiny-ORIG", "RANDOM tiny", "tiny-reviews-FT[1]"]
    assert list(joint["label_x"].unique()) == names
    assert len(joint) == 12 * 12
    assert set(joint["n"]) == {12}


def test_a_failed_job_is_in_a_table_and_the_exit_code(content, tmp_path, simcore, monkeypatch):
    name, task = content["models"][0]["name"], content["tasks"][0]["name"]
    file = tmp_path / "study.toml"
    file.write_text(
        f'models = ["{name}"]\ntasks = [{{name = "{task}", text_column = "body"}}]\n'
        'grids = [{between = "within"}, {measure = "svcca", between = "within"}]\n'
        "extract = {split = 'all', limit = 3}\n"
    )
    monkeypatch.setattr(sweep_module, "Pool", lambda **_: Inline())
    monkeypatch.setattr(status_module, "WRITE_SECONDS", -1.0)
    noted = []

    def write(path, value):
        write_json(path, value)
        noted.extend(statuses([path.parent]))

    monkeypatch.setattr(status_module, "write_json", write)
    code, printed, _ = simcore("sweep", file, "--out", tmp_path / "out", "--no-figures")
    assert code == 1
    # The status that the page shows is written while the sweep runs, with what has failed by then.
    counts = [{k: sum(n[k] for n in found["kinds"].values()) for k in WORDS} for found in noted]
    assert sorted({count["done"] for count in counts}) == [0, 1, 2]
    assert [(count["waiting"], count["failed"]) for count in (counts[0], counts[-1])] == [
        (3, 0),
        (0, 1),
    ]
    (failure,) = noted[-1]["failed"]
    assert failure["title"] == "grid ORIG-ORIG cka cls reviews"
    assert "wanted at least 4 rows" in failure["error"]
    assert "1 jobs failed" in printed
    assert "grid ORIG-ORIG cka cls reviews: " in printed
    assert "wanted at least 4 rows" in printed
    assert len(list((tmp_path / "out" / "failures").glob("*.json"))) == 1
    # The page is drawn with the figures, and says what failed.
    page = tmp_path / "out" / "report.html"
    assert not page.exists()
    code, printed, _ = simcore("sweep", file, "--out", tmp_path / "out")
    assert code == 1
    assert f"{page}: open it in a browser" in printed.replace("\n", "")
    data = Parts(page.read_text()).data
    assert [setting["measure"] for setting in data["settings"]] == ["svcca"]
    assert data["statuses"][0]["failed"] == [failure]


def test_the_commands_print_the_plan_and_the_status(done, content, tmp_path, simcore):
    _, out, _ = done
    file = tmp_path / "study.json"
    file.write_text(json.dumps(content))
    toml = tmp_path / "study.toml"
    name, task = content["models"][0]["name"], content["tasks"][0]["name"]
    toml.write_text(
        f'models = ["{name}"]\ntasks = [{{name = "{task}", text_column = "body", '
        'label_column = "verdict"}]\n'
        "[finetune]\nseeds = 3\n"
    )
    code, printed, _ = simcore("sweep", toml, "--plan")
    assert code == 0
    assert "finetune" in printed
    assert "disk space of all objects" in printed
    code, printed, _ = simcore("status", out, "--json")
    status = json.loads(printed)
    assert status["total"]["waiting"] == 0
    assert simcore("status", out)[0] == 0
    code, _, errors = simcore("status", tmp_path)
    assert code == 2
    assert "wanted the folder of a sweep" in errors[0]
    code, _, errors = simcore("sweep", toml)
    assert (code, "--out: wanted a folder" in errors[0]) == (2, True)


def test_rows_of_modules_are_those_of_the_command(tiny_bert, reviews, tmp_path):
    task = {"name": str(reviews), "text_column": "body", "heldout_size": 20, **LABEL}
    modules = {"modules": ["embeddings", "encoder.layer.*"], "pool": "mean"}
    sweep = Sweep(
        {
            "models": [{"name": str(tiny_bert.path), "label": "tiny"}],
            "tasks": [task],
            "extract": [modules, {"kind": "mean-all"}],
            "grids": {"estimator": "biased"},
        }
    )
    assert run(sweep, tmp_path / "out").failed == ()
    options = TaskOptions(text_column="body", label_column="verdict", heldout_size=20)
    reps = extract(tiny_bert, str(reviews), tmp_path / "reps", task_options=options, **modules)
    wanted = read_results(grid(reps.path, tmp_path / "g.parquet", estimator="biased").path)
    frame = sweep.results(tmp_path / "out").set_index("kind")
    found = frame.loc["modules-mean"]
    assert (found["value"].to_numpy() == wanted["value"].to_numpy()).all()
    assert len(found) == len(frame.loc["mean-all"]) == 16


def test_one_split_of_a_data_set_is_read_as_planned(tiny_bert, reviews, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    texts = pd.read_csv(reviews)[["body"]]
    for split, part in (("train", texts[:9]), ("validation", texts[9:15])):
        part.to_csv(data / f"{split}.csv", index=False)
    on = {"name": str(data), "text_column": "body", "corpus_split": "validation"}
    sweep = Sweep(
        {
            "models": [{"name": str(tiny_bert.path), "label": "tiny"}],
            "tasks": [{"name": str(reviews), "text_column": "body", "label_column": "verdict"}],
            "finetune": {"max_steps": 1},
            "extract": {"on": on, "kind": "mean"},
            "grids": {"estimator": "biased", "between": "within"},
        }
    )
    assert run(sweep, tmp_path / "out").failed == ()
    frame = sweep.results(tmp_path / "out")
    assert set(frame.loc[frame["measure"] == "cka", "n"]) == {6}
