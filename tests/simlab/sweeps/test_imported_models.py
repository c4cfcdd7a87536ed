"""ELMo and rows of other programs beside models of transformers in one sweep, as Wu et al. have."""

import runpy

import h5py
import numpy as np
import pytest

import simcore
from simlab import Sweep, load_representations
from simlab.errors import UserError
from support.lab.elmofiles import SMALL, write_elmo
from support.lab.inline import run
from support.pages import ROOT

# Words of the tiny BERT's vocabulary.
SENTENCES = ("the film is good", "a film was bad story", "story is a the")
LAYERS, WIDTH = 3, 5
WORD_LAST = {"kind": "word-last", "special_tokens": False, "words": "spaces"}


@pytest.fixture
def corpus(tmp_path):
    """A file with a sentence on each line, read by all models."""
    file = tmp_path / "ptb.txt"
    file.write_text("\n".join(SENTENCES) + "\n")
    return str(file)


@pytest.fixture
def theirs(tmp_path):
    """The layers of the transformer ELMo in its file, ``[layers, words, p]`` for each sentence."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(LAYERS, len(text.split()), WIDTH)) for text in SENTENCES]
    file = tmp_path / "transformer.hdf5"
    with h5py.File(file, "w") as content:
        for number, array in enumerate(arrays):
            content[str(number)] = array.astype(np.float32)
    return str(file), np.concatenate(arrays, 1)


@pytest.fixture
def content(tiny_bert, corpus, theirs, tmp_path):
    write_elmo(tmp_path / "elmo", SMALL)
    example = runpy.run_path(str(ROOT / "examples" / "models" / "elmo.py"))
    example["main"]([str(tmp_path / "elmo"), corpus, str(tmp_path / "elmo.hdf5")])
    rows = {"on": corpus, "kind": "word-last", "file": theirs[0]}
    return {
        "models": [
            {"name": str(tiny_bert.path), "label": "bert"},
            {"label": "elmo", "rows": {**rows, "file": str(tmp_path / "elmo.hdf5")}},
            {"label": "elmo-transformer", "rows": rows},
        ],
        "tasks": "rt",
        "extract": [
            {"on": corpus, "stages": ["orig", "random"], **WORD_LAST},
            {"on": corpus, "kind": "attention", "models": "bert"},
        ],
        "grids": [
            {"measure": ["neuronsim", "cka"], "between": "joint", "stages": "orig"}
            | {"kind": "word-last"},
            {"measure": "attention-js", "between": "joint", "kind": "attention"},
        ],
    }


def test_one_joint_grid_has_bert_elmo_and_rows_of_another_program(content, theirs, tmp_path):
    sweep, out = Sweep(content), tmp_path / "out"
    report = run(sweep, out)
    assert report.failed == ()
    frame = sweep.results(out)
    words = frame[(frame["measure"] == "cka") & (frame["estimator"] == "biased")]
    names = ["bert-ORIG", "elmo-ORIG", "elmo-transformer-ORIG"]
    assert list(words["label_x"].unique()) == names
    assert set(words["n"]) == {sum(len(text.split()) for text in SENTENCES)}
    attended = frame[frame["measure"] == "attention-js"]
    assert list(attended["label_x"].unique()) == ["bert-ORIG"]

    imported = load_representations(next((out / "representations").glob("elmo-transformer*")))
    for layer, wanted in zip(imported.layers, theirs[1], strict=True):
        np.testing.assert_array_equal(layer, wanted.astype(np.float32))
    elmo = load_representations(next((out / "representations").glob("elmo-orig*")))
    sides = [[np.asarray(layer) for layer in rows.layers] for rows in (elmo, imported)]
    grid = simcore.cka_grid(*sides, estimator="biased")
    pair = words[(words["label_x"] == names[1]) & (words["label_y"] == names[2])]
    found = pair.pivot(index="layer_x", columns="layer_y", values="value").to_numpy()
    np.testing.assert_allclose(found, grid, atol=1e-9)

    assert run(Sweep(content), out).done == {}
    with h5py.File(theirs[0], "r+") as file:
        file["1"][...] = 1.5 * file["1"][...]
    again = run(Sweep(content), out)
    assert again.failed == ()
    assert again.done == {"import": 1, "grid": 2}


def test_rows_of_a_task_have_its_split(content, theirs, tmp_path, entry):
    """Layers of the held-out rows of a task that the sweep fine-tunes on."""
    task = {**entry, "heldout_size": 10}
    file = tmp_path / "layers.npz"
    np.savez(file, *np.random.default_rng(1).normal(size=(2, 10, 3)).astype(np.float32))
    rows = {"on": task, "kind": "cls", "split": "heldout", "file": str(file)}
    few = {
        "models": [content["models"][0], {"label": "theirs", "rows": rows}],
        "tasks": task,
        "finetune": {"max_steps": 1},
        "grids": {"between": ["joint", "models"]},
    }
    sweep = Sweep(few)
    assert run(sweep, tmp_path / "out").failed == ()
    frame = sweep.results(tmp_path / "out")
    named = frame[frame["label_y"] == "theirs-ORIG"]
    assert set(named["label_x"]) == {"bert-ORIG", "bert-FT[1]", "theirs-ORIG"}
    assert set(named["n"]) == {10}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": None}, "wanted one of the keys name, pretrain and rows, found 'none'"),
        ({"name": "minilm"}, "wanted one of the keys name, pretrain and rows, found 'name, rows'"),
        ({"label": None}, "wanted the key 'label' beside 'rows', found 'none'"),
        ({"seeds": 3}, r"seeds: wanted none beside 'rows', found \(3,\)"),
        ({"kind": "attention"}, "kind: wanted one of .*, found 'attention'"),
        ({"file": "none.npz"}, "key models.rows.file: wanted a file, found no file none.npz"),
        (
            {"kind": "mean"},
            r"key models.rows: wanted an extraction of mean rows of .*ptb.txt, split all, which "
            "the rows of elmo-transformer stand beside, found none",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused(content, changes, message):
    entry = dict(content["models"][2])
    inner = {key: value for key, value in changes.items() if key in ("kind", "file")}
    outer = {key: value for key, value in changes.items() if key not in inner}
    entry |= {"rows": entry["rows"] | inner} | outer
    entry = {key: value for key, value in entry.items() if value is not None}
    with pytest.raises(UserError, match=message):
        Sweep({**content, "models": [*content["models"][:2], entry]}).plan()
