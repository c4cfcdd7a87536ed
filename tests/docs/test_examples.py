"""The examples: scripts of the gallery find what they say, and notebooks run."""

import json
import re
import runpy

import pytest
import torch

from support.pages import ROOT, with_few_rows

GALLERY = sorted((ROOT / "examples" / "gallery").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """An empty folder, and pictures that no window shows."""
    from matplotlib import pyplot as plt

    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")
    yield
    plt.close("all")


def run(name):
    """Run a script of the gallery and return its names."""
    with torch.random.fork_rng():
        return runpy.run_path(
            str(ROOT / "examples" / "gallery" / f"{name}.py"), run_name="__main__"
        )


def test_the_gallery_is_as_large_as_promised():
    assert 6 <= len(GALLERY) + len(NOTEBOOKS) <= 10
    assert len(NOTEBOOKS) == 2


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_committed_without_outputs(notebook):
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_chance(drawn):
    names = run("chance")
    assert all(abs(value) < 0.15 for value in names["curves"]["CKA, unbiased"])
    assert names["curves"]["SVCCA"][0] > 0.9
    assert (names["test"].pvalue[0] < 0.05).tolist() == [False, True]


def test_a_loss_between_layers(drawn):
    values = run("loss_between_layers")["values"]
    assert values[0] < 0.5 < 0.9 < values[-1]


@pytest.mark.slow
def test_two_seeds(drawn):
    result = run("two_seeds")["result"]
    assert result.values.argmax(1).tolist() == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.assets
def test_invariances(drawn):
    names = run("invariances")
    values = dict(zip(names["measures"], names["values"], strict=True))
    changes = list(names["changed"])

    def seen(measure, change):
        return float(values[measure][changes.index(change)]) < 0.999

    assert not seen("CKA", "rotation")
    assert seen("CKA", "linear map")
    assert not seen("linear regression", "linear map")
    assert seen("best neurons", "rotation")
    assert not seen("best neurons", "neurons in another order")


@pytest.mark.slow
@pytest.mark.assets
def test_a_random_twin(drawn):
    grid = run("random_twin")["random"].values
    assert grid[0].mean() > grid[-1].mean() + 0.2


@pytest.mark.slow
@pytest.mark.assets
def test_maps_between_layers(drawn):
    errors = run("maps_between_layers")["errors"]["linear"]
    assert errors[1].heldout.relative < errors[-1].heldout.relative


@pytest.mark.slow
def test_a_streamed_decoder(drawn, capsys):
    run("streamed_decoder")
    assert "max_memory" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.assets
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(notebook, drawn):
    """On fewer rows and steps than they show; `make docs` runs them as they stand."""
    cells = json.loads(notebook.read_text())["cells"]
    scope = {"__name__": "__main__"}
    with torch.random.fork_rng():
        for cell in cells:
            if cell["cell_type"] == "code":
                text = with_few_rows("".join(cell["source"]))
                text = re.sub(r"(modes=\([^)]*\))", r"\1, head_most_steps=20", text)
                exec(compile(text, f"{notebook.stem}:{cell['id']}", "exec"), scope)
