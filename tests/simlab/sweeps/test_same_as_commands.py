"""A sweep of every kind of job: its results, page and figures, and the commands' own outputs.

A job and the command with the same inputs have one key, and find one output.
"""

import json

import numpy as np
import pandas as pd
import pytest

from simlab import Sweep, TaskOptions, load_task, read_results
from simlab.experiments.freeze_study import RESULTS
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
    SECONDS,
    STATISTICS,
    TFIDF,
)
from simlab.results.results import JOINT as JOINT_GRID
from simlab.results.tables import table_key
from simlab.sweeps import comparisons
from simlab.sweeps.rows import jobs_in, read_rows
from support.lab.inline import run
from support.lab.tinymodels import COLUMNS as NAMED

SIZE, STEPS = 80, 2
JOINT = ["neuronsim", "svcca"]
METHODS = ["itself", "identity"]
LABEL = {"label_column": "verdict"}


@pytest.fixture(scope="module")
def content(tiny_bert, reviews):
    """A file that asks for every kind of job."""
    task = {"name": str(reviews), "text_column": "body", "heldout_size": SIZE, **LABEL}
    return {
        "models": [{"name": str(tiny_bert.path), "label": "tiny"}],
        "tasks": [task],
        "finetune": {"max_steps": STEPS, "seeds": "1..2"},
        "extract": {"kind": ["cls", "mean"]},
        "grids": [
            {"measure": "cka", "estimator": "biased", "kind": "cls", "bootstrap": 4},
            {"measure": JOINT, "between": "joint", "kind": "mean"},
        ],
        "truncate": True,
        "skip": True,
        "inject": {"layer": 2, "methods": METHODS, "directions": "one"},
        "align": {"methods": ["cca", "linear"], "kind": "mean", "within": True, "stages": "ft"},
        "freeze": {"bottom": 1},
        "baselines": True,
        "localize": True,
        "blocks": {"permutations": 20},
        "complexity": {"kind": "mean"},
        "figures": {"formats": "svg"},
    }


@pytest.fixture(scope="module")
def done(content, tmp_path_factory):
    """The sweep and its folder when it is finished, and what the run reported."""
    out = tmp_path_factory.mktemp("sweep") / "out"
    sweep = Sweep(content)
    return sweep, out, run(sweep, out, figures=True)


@pytest.fixture
def swept(done):
    """The folder of the sweep, and its plan."""
    return done[1], done[0].plan()


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


def test_figures_are_drawn_and_nothing_is_done_again(done):
    sweep, out, report = done
    names = {file.name for file in report.figures}
    assert {"reviews-truncation.svg", "reviews-skipping.svg", "reviews-models.svg"} <= names
    assert all(file.parent == out / "figures" for file in report.figures)
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


def joint_values(sweep, out):
    """Return the values of the joint grids, by measure and pair of layers."""
    frame = sweep.results(out)
    frame = frame[frame["comparison"].eq("ORIG + FT") & frame["experiment"].eq(JOINT_GRID)]
    places = ["measure", "label_x", "layer_x", "label_y", "layer_y"]
    return frame.set_index(places)["value"].astype(float)


def test_tiles_of_a_joint_grid_have_its_values(done, content, monkeypatch):
    sweep, out, _ = done
    whole = joint_values(sweep, out)
    with monkeypatch.context() as patch:
        patch.setattr(comparisons, "TILE", dict.fromkeys(comparisons.TILE, 1))
        few = {name: content[name] for name in ("models", "tasks", "finetune", "extract", "grids")}
        tiled = Sweep(few)
        tiles = [job for job in tiled.plan().jobs if job.kind == "grid" and job.params["joint"]]
        assert len(tiles) == 2 * 6
        assert tiled.plan().counts()["bases"] == 3  # svcca decomposes layers
        assert run(tiled, out).done["grid"] == len(tiles)
        assert not list((out / "objects" / "bases").rglob("object.json"))  # nothing needs them
        assert run(tiled, out).done == {}
        parts = joint_values(tiled, out)
    assert len(whole) == len(parts) == 2 * 12 * 12
    assert whole.index.is_unique
    np.testing.assert_allclose(parts.loc[whole.index], whole, rtol=1e-4, atol=1e-6)
    run(sweep, out)  # brings the rows back that were set aside


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


def place(swept, kind, number=0):
    out, plan = swept
    job = [job for job in plan.jobs if job.kind == kind][number]
    return next(out.glob(f"objects/{kind}/*/{job.key}"))


def jobs_of(swept, kind, **params):
    """Return the jobs of a kind, and of some parameters."""
    found = [job for job in swept[1].jobs if job.kind == kind]
    return [job for job in found if params.items() <= job.params.items()]


def inputs_of(swept, job):
    """Return the folders that a job reads."""
    out, plan = swept
    needs = [plan.jobs[number] for number in job.needs]
    return [next(out.glob(f"objects/{need.kind}/*/{need.key}")) for need in needs]


def rows_of(swept, job):
    """Return the file of a sweep that has the rows of a job, and the keys of the job's grids."""
    for file in swept[0].rglob("results/**/*.parquet"):
        if job.key in jobs_in(file):
            rows = read_rows(file)[1].to_pandas()
            return file, list(dict.fromkeys(rows.loc[rows["job"] == job.key, "grid"]))
    raise AssertionError(job)


def require_same(simcore, swept, job, arguments, alone):
    """Check that a command makes the rows of a job, under one key."""
    file, keys = rows_of(swept, job)
    command(simcore, *arguments, "--out", alone)
    assert keys == [table_key(alone)]
    require_rows(file, keys, read_results(alone))


def require_rows(file, keys, wanted):
    """Check that a file of a sweep has these rows of some jobs, `wanted` in order."""
    found = read_results(file)
    found = found[found["experiment"].isin(wanted["experiment"]) & found["grid"].isin(keys)]
    assert found.reset_index(drop=True).equals(wanted)


def command(simcore, *arguments):
    code, printed, errors = simcore(*map(str, arguments))
    assert code == 0, errors
    return printed


def of_task(reviews):
    return [reviews, *NAMED, "--heldout-size", SIZE]


def test_a_checkpoint_of_a_sweep_is_that_of_the_command(swept, simcore, tiny_bert, reviews):
    made = place(swept, "finetune")
    printed = command(
        simcore,
        *("finetune", tiny_bert.path, *of_task(reviews)),
        *("--max-steps", STEPS, "--seed", 1, "--out", made),
    )
    assert "done before" in printed


@pytest.mark.parametrize(("number", "label"), [(0, "ORIG"), (2, "FT[1]")])
def test_rows_of_a_sweep_are_those_of_the_command(
    swept, simcore, tiny_bert, reviews, number, label
):
    made = place(swept, "extract", number)
    model = tiny_bert.path if number == 0 else place(swept, "finetune")
    seed = ["--seed", 1] if number else []
    printed = command(
        simcore,
        *("extract", model, *of_task(reviews), "--max-length", 64, *seed),
        *("--label", f"tiny-{label}", "--out", made),
    )
    assert "done before" in printed


@pytest.mark.parametrize("kind", ["truncate", "skip"])
def test_results_of_a_sweep_are_those_of_the_command(swept, simcore, tmp_path, reviews, kind):
    job = jobs_of(swept, kind)[0]
    side = job.params["side"]
    named = ["--label", side["label"], "--seed", side["seed"]]
    arguments = [kind, place(swept, "finetune"), *of_task(reviews), *named]
    require_same(simcore, swept, job, arguments, tmp_path / "alone.parquet")


def test_a_grid_and_its_blocks_are_those_of_the_commands(swept, simcore, tmp_path):
    job = jobs_of(swept, "grid", comparison="FT-FT")[0]
    alone = tmp_path / "alone.parquet"
    arguments = ["grid", *inputs_of(swept, job), "--estimator", "biased", "--bootstrap", 4]
    require_same(simcore, swept, job, [*arguments, "--comparison", "FT-FT"], alone)
    (blocks,) = (one for one in jobs_of(swept, "blocks") if swept[1].jobs[one.needs[0]] is job)
    arguments = ["blocks", alone, "--permutations", 20]
    require_same(simcore, swept, blocks, arguments, tmp_path / "blocks.parquet")


def test_a_grid_between_restarts_is_that_of_the_command(swept, simcore, tmp_path):
    (job,) = jobs_of(swept, "grid", comparison="FT[1]-FT[2]")
    arguments = ["grid", *inputs_of(swept, job), "--estimator", "biased", "--bootstrap", 4]
    arguments += ["--comparison", "FT[1]-FT[2]"]
    require_same(simcore, swept, job, arguments, tmp_path / "alone.parquet")


def test_joint_grids_and_their_localization_are_those_of_the_commands(swept, simcore, tmp_path):
    files = []
    for measure in JOINT:
        (job,) = jobs_of(swept, "grid", measure=measure)
        arguments = ["grid", *inputs_of(swept, job), "--joint", "--measure", measure]
        arguments += ["--comparison", "ORIG + FT"]
        files.append(tmp_path / f"{measure}.parquet")
        require_same(simcore, swept, job, arguments, files[-1])
    (job,) = jobs_of(swept, "localize")
    require_same(simcore, swept, job, ["localize", *files], tmp_path / "scores.parquet")


def test_an_alignment_study_of_a_sweep_is_that_of_the_command(swept, simcore, tmp_path):
    out = swept[0] / "results"
    files = sorted(out.iterdir())
    folders = inputs_of(swept, jobs_of(swept, "align")[0])
    for name, kind in (("FT", "align"), ("models", "complexity")):
        arguments = ["align-study", *folders, "--name", name, "--within"]
        arguments += ["--method", "cca", "--method", "linear"]
        command(simcore, *arguments, "--out", tmp_path / name)
        made = {table_key(file): file for file in (tmp_path / name).iterdir()}
        jobs = jobs_of(swept, kind)
        keys = {key for job in jobs for key in rows_of(swept, job)[1]}
        assert len(keys) == (8 if kind == "align" else 6)
        common = keys & made.keys()
        assert len(common) == (8 if kind == "align" else 4)  # ORIG is not in the study
        for key in common:
            require_rows(files[0], [key], read_results(made[key]))


def test_an_injection_of_a_sweep_is_that_of_the_command(swept, simcore, tmp_path, reviews):
    (job,) = jobs_of(swept, "inject")
    labels = [word for side in job.params["sides"] for word in ("--label", side["label"])]
    methods = [word for method in METHODS for word in ("--method", method)]
    models = [place(swept, "finetune", number) for number in (0, 1)]
    arguments = ["inject", *models, *of_task(reviews), "--layer", 2, *labels, *methods]
    require_same(simcore, swept, job, arguments, tmp_path / "alone.parquet")


def test_a_freezing_study_of_a_sweep_is_that_of_the_command(
    swept, simcore, tmp_path, tiny_bert, reviews
):
    arguments = ["freeze-study", tiny_bert.path, *of_task(reviews), "--bottom", 1]
    arguments += ["--seeds", "1,2", "--max-steps", STEPS, "--out", tmp_path / "study"]
    assert "trained parameters" in command(simcore, *arguments)
    assert (tmp_path / "study" / "figures" / "reviews-freezing.png").is_file()
    assert command(simcore, *arguments).count("done before") == 4
    (job,) = jobs_of(swept, "freeze")
    file, (key,) = rows_of(swept, job)
    alone = tmp_path / "study" / RESULTS
    assert table_key(alone) == key
    wanted, found = (rows[rows["grid"] == key] for rows in map(read_results, (alone, file)))
    timed = wanted["measure"] == SECONDS
    assert timed.sum() == 4
    found = found.reset_index(drop=True)
    assert found[~timed].equals(wanted[~timed])
