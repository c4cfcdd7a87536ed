"""Small sweeps of tiny models: equal bits, failed jobs, rows of modules, one split of a task."""

import pandas as pd
import pytest

from simlab import Sweep, TaskOptions, extract, grid, read_results
from simlab.report.write import statuses
from simlab.store.files import write_json
from simlab.sweeps import status as status_module
from simlab.sweeps import sweep as sweep_module
from support.lab.inline import Inline, run
from support.lab.pages import Parts

WORDS = ("done", "waiting", "failed")
LABEL = {"label_column": "verdict"}


@pytest.fixture
def content(tiny_bert, reviews):
    """A model and a task."""
    return {
        "models": [{"name": str(tiny_bert.path), "label": "tiny"}],
        "tasks": [{"name": str(reviews), "text_column": "body", "heldout_size": 80, **LABEL}],
    }


def test_two_runs_have_the_same_bits(content, tmp_path):
    """Sources of models made in a sweep seed random baselines and stand in manifests."""
    methods = ["random-labels", "random-classifier", "random-embeddings"]
    sweep = Sweep(
        {
            **content,
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


def test_one_split_of_a_data_set_is_read_as_planned(tiny_bert, reviews, entry, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    texts = pd.read_csv(reviews)[["body"]]
    for split, part in (("train", texts[:9]), ("validation", texts[9:15])):
        part.to_csv(data / f"{split}.csv", index=False)
    on = {"name": str(data), "text_column": "body", "corpus_split": "validation"}
    sweep = Sweep(
        {
            "models": [{"name": str(tiny_bert.path), "label": "tiny"}],
            "tasks": [entry],
            "finetune": {"max_steps": 1},
            "extract": {"on": on, "kind": "mean"},
            "grids": {"estimator": "biased", "between": "within"},
        }
    )
    assert run(sweep, tmp_path / "out").failed == ()
    frame = sweep.results(tmp_path / "out")
    assert set(frame.loc[frame["measure"] == "cka", "n"]) == {6}
