"""A job of a sweep and the command with the same inputs have one key, and find one output."""

import pytest

from simlab import Sweep
from simlab.store.results import read_results
from simlab.store.tables import table_key
from simlab.sweeps.parts import read_jobs
from support.lab.inline import InlineEngine
from support.lab.tinymodels import COLUMNS

SIZE, STEPS = 40, 2


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
            "finetune": {"max_steps": STEPS, "seeds": 1},
            "truncate": True,
            "skip": True,
        }
    )
    sweep.run(out, engine=InlineEngine(), durable=False, figures=False)
    return out, sweep.plan()


def place(swept, kind, number=0):
    out, plan = swept
    job = [job for job in plan.jobs if job.kind == kind][number]
    return next(out.glob(f"objects/{kind}/*/{job.key}"))


def rows_of(swept, kind):
    """Return the file of a sweep that has the rows of a job, and the key of the job's step."""
    out, _ = swept
    for file in out.rglob("results/**/*.parquet"):
        for made in read_jobs(file).values():
            if made.kind == kind:
                return file, made.step
    raise AssertionError(kind)


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
    file, key = rows_of(swept, kind)
    before = file.read_bytes()
    side = next(job.params["side"] for job in swept[1].jobs if job.kind == kind)
    named = ["--label", side["label"], "--seed", side["seed"]]
    arguments = [kind, place(swept, "finetune"), *of_task(reviews), *named, "--out"]
    assert "done before" in run(simcore, *arguments, file)
    assert file.read_bytes() == before
    alone = tmp_path / "alone.parquet"
    run(simcore, *arguments, alone)
    assert table_key(alone) == key
    wanted = read_results(alone)
    found = read_results(file)
    found = found[found["experiment"].isin(wanted["experiment"]) & (found["grid"] == key)]
    assert found.reset_index(drop=True).equals(wanted)


def test_another_option_is_not_done_before(swept, simcore, reviews):
    file, _ = rows_of(swept, "truncate")
    arguments = ["truncate", place(swept, "finetune"), *of_task(reviews), "--out", file]
    code, _, errors = simcore(*map(str, arguments))
    assert code == 2
    assert "wanted a new file or one made from the same inputs" in errors[-1]
