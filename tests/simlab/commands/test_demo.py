"""The demo from end to end on a tiny model, and again."""

import tomllib

import pytest

from simlab.commands import sweeps
from simlab.commands.sweeps import FILE
from simlab.models.checkpoint import read_evaluation
from simlab.results.reading import read_results
from simlab.results.results import BASELINE, MAJORITY, TFIDF, TRUNCATION
from simlab.sweeps import driver, status, sweep
from simlab.sweeps.status import Count, Status
from simlab.sweeps.sweep import Sweep
from support.lab.inline import Inline
from support.lab.pages import Parts
from support.lab.tinymodels import COLUMNS, LAYERS

RECIPE = {"epochs": 5, "learning_rate": 5e-3, "batch_size": 8, "max_length": 24}
FT1, FT2 = TUNED = ("tiny-ft-1", "tiny-ft-2")
MODELS = ("tiny-orig", *TUNED)
VIEWS = ("cls", "word-last", "attention")
JOINT_MEASURES = {"neuronsim", "svcca", "pwcca", "mixedsim", "attention-js"}


@pytest.fixture(scope="module")
def model(tmp_path_factory, tiny_bert):
    """The tiny model under a short name, from which the names of its rows are made."""
    link = tmp_path_factory.mktemp("named") / "tiny"
    link.symlink_to(tiny_bert.path)
    return link


@pytest.fixture(autouse=True, scope="module")
def _tiny_and_inline(model, reviews):
    """Read a tiny model and task, and run jobs in this process: a worker takes seconds to start."""
    names = (name.removeprefix("--").replace("-", "_") for name in COLUMNS[::2])
    columns = dict(zip(names, COLUMNS[1::2], strict=True))

    def from_file(file):
        study = tomllib.loads(file.read_text())
        study |= {"models": [str(model)], "tasks": [{"name": str(reviews), **columns}]}
        study["finetune"] |= RECIPE
        for section in study["extract"]:
            section |= {"limit": 32} if "limit" in section else {}
        return Sweep(study)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "Pool", lambda **_: Inline())
        patch.setattr(Sweep, "from_file", from_file)
        yield


def test_its_file_plans_all_that_is_asked_below():
    assert Sweep.from_file(FILE).plan().counts() == {
        **{"finetune": 3, "extract": 10, "scores": 3, "truncate": 2},
        **{"grid": 8 + len(JOINT_MEASURES), "baselines": 1, "localize": 1},
    }


def test_a_page_that_cannot_be_written_ends_no_run(tmp_path, monkeypatch, capsys):
    counts = {"grid": Count(done=1), "finetune": Count(running=1)}
    monkeypatch.setattr(status, "read_status", lambda _: Status(counts, 0.0, None, None))
    (tmp_path / "report.html").mkdir()
    page = sweeps._EarlyPage(tmp_path)
    for _ in range(2):
        page.write()
    assert capsys.readouterr().err.count("no page before the end") == 1


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of one finished demo, and the texts of all pages that it wrote."""
    from simlab import cli

    out, pages, write = tmp_path_factory.mktemp("runs") / "demo", [], sweeps._write_page

    def noted(place):
        pages.append(write(place).read_text())
        return place / "report.html"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeps, "_write_page", noted)
        patch.setattr(driver, "GATHER_SECONDS", -1.0)
        assert cli.run(["demo", "--out", str(out)]) == 0
    return out, pages


@pytest.fixture(scope="module")
def run(written):
    """The folder of one finished demo."""
    return written[0]


@pytest.mark.deep
def test_the_page_is_there_with_the_first_grid_and_says_what_is_not_done(written):
    _, pages = written
    states = [Parts(page).data["statuses"][0]["kinds"] for page in pages]
    assert states[0]["grid"]["done"] == 1
    assert states[0]["finetune"]["waiting"] == 3
    assert Parts(pages[0]).data["grids"]
    done = [sum(kind["done"] for kind in state.values()) for state in states]
    assert done == sorted(set(done))
    said = [
        f"{count} of {done[-1]} jobs of demo were done" in page
        for count, page in zip(done, pages, strict=True)
    ]
    assert said == [*[True] * (len(pages) - 1), False]


@pytest.mark.deep
def test_everything_is_there_by_name(run):
    representations = {f"{model}-{view}-heldout-reviews" for model in MODELS for view in VIEWS}
    representations.add("random-tiny-cls-heldout-reviews")
    assert {path.name for path in (run / "representations").iterdir()} == representations
    checkpoints = {f"{model}-reviews" for model in (*TUNED, "tiny-from-random-weights")}
    assert {path.name for path in (run / "checkpoints").iterdir()} == checkpoints
    figures = {path.name for path in (run / "figures").iterdir()}
    assert figures >= {
        "reviews-cka-biased.png",
        "reviews-cka-unbiased.pdf",
        "reviews-truncation.png",
        "reviews-models.png",
    }
    page = Parts((run / "report.html").read_text())
    assert page.data["statuses"][0]["kinds"]["grid"]["done"] == 8 + len(JOINT_MEASURES)
    # CKA has two estimators.
    assert len(page.data["grids"]) == 2 * 8 + len(JOINT_MEASURES)
    assert page.data["jobs"] == len(representations) + len(checkpoints)


@pytest.mark.deep
def test_results_hold_every_grid_and_the_truncation_ends_at_the_model(run):
    frame = read_results(run / "results")
    grids = frame[frame["measure"] == "cka"]
    assert set(grids["estimator"]) == {"biased", "unbiased"}
    compared = {"ORIG-ORIG", "FT-ORIG", "FT-FT", "FT[1]-FT[2]", "RANDOM-ORIG", "RANDOM-RANDOM"}
    assert set(grids["comparison"]) == compared
    sizes = grids.groupby(["comparison", "estimator", "label_x"]).size()
    assert (sizes == (LAYERS + 1) ** 2).all()
    last = frame[(frame["experiment"] == TRUNCATION) & (frame["layer_x"] == LAYERS)]
    assert len(last) == len(TUNED)
    for seed, value in zip(last["seed_x"], last["value"], strict=True):
        checkpoint = run / "checkpoints" / f"tiny-ft-{seed}-reviews"
        assert value == read_evaluation(checkpoint)["value"]


@pytest.mark.deep
def test_fine_tuned_models_stand_beside_baselines(run):
    frame = read_results(run / "results")
    scores = frame[frame["experiment"] == BASELINE].drop_duplicates("label_x").set_index("label_x")
    assert set(scores.index) == {
        *("tiny-FT[1]", "tiny-FT[2]", "tiny from random weights", MAJORITY, TFIDF)
    }
    assert scores["value"]["tiny-FT[1]"] > scores["value"][MAJORITY]
    assert set(scores.index[scores["base_x"].notna()]) == {"tiny-FT[1]", "tiny-FT[2]"}


@pytest.mark.deep
def test_running_again_does_nothing_but_say_so(run, simcore):
    results = {path: path.stat().st_mtime_ns for path in (run / "results").iterdir()}
    weights = run / "checkpoints" / f"{FT1}-reviews" / "model.safetensors"
    written = weights.stat().st_mtime_ns
    code, printed, _ = simcore("demo", "--out", run)
    assert code == 0
    assert "jobs done, 0 of them now" in printed
    *_, page, grids, _, models = printed.strip().splitlines()
    assert page == f"{run / 'report.html'}: open it in a browser"
    assert grids.startswith(f"{run / 'figures' / 'reviews-cka-unbiased.png'}: ")
    assert models.startswith(f"{run / 'figures' / 'reviews-models.png'}: ")
    assert weights.stat().st_mtime_ns == written
    assert results == {path: path.stat().st_mtime_ns for path in (run / "results").iterdir()}
