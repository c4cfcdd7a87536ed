"""A job of a sweep and the command with the same inputs have one key, and find one output."""

import pytest

from simlab import Sweep
from simlab.experiments.freeze_study import RESULTS
from simlab.results.reading import read_results
from simlab.results.results import SECONDS
from simlab.results.tables import table_key
from simlab.sweeps.rows import jobs_in, read_rows
from support.lab.inline import Inline
from support.lab.tinymodels import COLUMNS

SIZE, STEPS = 80, 2
JOINT = ["neuronsim", "svcca"]
METHODS = ["itself", "identity"]


@pytest.fixture(scope="module")
def swept(tiny_bert, reviews, tmp_path_factory):
    """A finished sweep, and the place of every job's output by its kind and title."""
    out = tmp_path_factory.mktemp("sweep") / "out"
    sweep = Sweep(
        {
            "models": [str(tiny_bert.path)],
            "tasks": [
                {
                    "name": str(reviews),
                    "text_column": "body",
                    "label_column": "verdict",
                    "heldout_size": SIZE,
                }
            ],
            "finetune": {"max_steps": STEPS, "seeds": "1..2"},
            "grids": [
                {"estimator": "biased", "between": ["within", "restarts"], "bootstrap": 4},
                {"measure": JOINT, "between": "joint"},
            ],
            "truncate": True,
            "skip": True,
            "blocks": {"permutations": 20},
            "localize": True,
            "complexity": True,
            "align": {"methods": ["cca", "linear"], "within": True, "stages": "ft"},
            "inject": {"layer": 2, "methods": METHODS, "directions": "one"},
            "freeze": {"bottom": 1},
        }
    )
    sweep.run(out, engine=Inline(), durable=False, figures=False)
    return out, sweep.plan()


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
    run(simcore, *arguments, "--out", alone)
    assert keys == [table_key(alone)]
    require_rows(file, keys, read_results(alone))


def require_rows(file, keys, wanted):
    """Check that a file of a sweep has these rows of some jobs, `wanted` in order."""
    found = read_results(file)
    found = found[found["experiment"].isin(wanted["experiment"]) & found["grid"].isin(keys)]
    assert found.reset_index(drop=True).equals(wanted)


def run(simcore, *arguments):
    code, printed, errors = simcore(*map(str, arguments))
    assert code == 0, errors
    return printed


def of_task(reviews):
    return [reviews, *COLUMNS, "--heldout-size", SIZE]


def test_a_checkpoint_of_a_sweep_is_that_of_the_command(swept, simcore, tiny_bert, reviews):
    made = place(swept, "finetune")
    printed = run(
        simcore,
        *("finetune", tiny_bert.path, *of_task(reviews)),
        *("--max-steps", STEPS, "--seed", 1, "--out", made),
    )
    assert "done before" in printed


@pytest.mark.parametrize(("number", "label"), [(0, "ORIG"), (1, "FT[1]")])
def test_rows_of_a_sweep_are_those_of_the_command(
    swept, simcore, tiny_bert, reviews, number, label
):
    made = place(swept, "extract", number)
    model = tiny_bert.path if number == 0 else place(swept, "finetune")
    seed = ["--seed", 1] if number else []
    printed = run(
        simcore,
        *("extract", model, *of_task(reviews), "--max-length", 64, *seed),
        *("--label", f"{tiny_bert.path.name}-{label}", "--out", made),
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
        run(simcore, *arguments, "--out", tmp_path / name)
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
    run(simcore, *arguments, "--seeds", "1,2", "--max-steps", STEPS, "--out", tmp_path / "study")
    (job,) = jobs_of(swept, "freeze")
    file, (key,) = rows_of(swept, job)
    alone = tmp_path / "study" / RESULTS
    assert table_key(alone) == key
    wanted, found = (rows[rows["grid"] == key] for rows in map(read_results, (alone, file)))
    timed = wanted["measure"] == SECONDS
    assert timed.sum() == 4
    found = found.reset_index(drop=True)
    assert found[~timed].equals(wanted[~timed])
