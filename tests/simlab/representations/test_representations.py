"""Representation folders: other rows are refused, and ids are names, whatever they look like."""

import shutil

import numpy as np
import pytest

from simlab import extract, grid, import_representations, load_representations, read_results
from simlab.errors import UserError
from simlab.representations.folder import describe, require_same_examples
from simlab.store.files import read_json, write_json


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_bert, review_task):
    """Rows that no test changes."""
    return extract(tiny_bert, review_task, tmp_path_factory.mktemp("rows") / "x").path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda manifest: manifest["ids"].reverse(), "same ids in another order, first at row 0"),
        (
            lambda manifest: manifest["ids"].__setitem__(4, "other"),
            "found different ids, first at row 4",
        ),
        (lambda manifest: manifest["ids"].pop(), "32 and 31 rows with the same ids as"),
        (lambda manifest: manifest.update(examples_sha256="0"), "other texts under the same ids"),
    ],
)
def test_other_examples_fail_loudly(tmp_path, folder, change, message):
    other = shutil.copytree(folder, tmp_path / "y")
    manifest = read_json(other / "manifest.json")
    change(manifest)
    write_json(other / "manifest.json", manifest)
    x, y = load_representations(folder), load_representations(other)
    require_same_examples(x, x)
    with pytest.raises(UserError, match=message):
        require_same_examples(x, y)


def test_one_layer_is_called_a_layer(tmp_path):
    manifest = {"kind": "imported", "n": 1200, "widths": [24], "layers": 1, "max_length": None}
    write_json(tmp_path / "manifest.json", manifest)
    assert describe(tmp_path) == "1 layer of 1,200 x 24"


def test_a_damaged_data_file_is_refused(tmp_path, folder):
    data = shutil.copytree(folder, tmp_path / "reps") / "cls.safetensors"
    content = bytearray(data.read_bytes())
    content[-1] ^= 1
    data.write_bytes(content)
    with pytest.raises(UserError, match=r"cls\.safetensors"):
        load_representations(tmp_path / "reps")


def test_ids_are_names_and_groups_are_a_column_of_their_own(tmp_path):
    """Intervals do not depend on what ids look like, and do on which rows belong together."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", **{f"layer.{i}": rng.standard_normal((60, 5)) for i in range(3)})
    names = {"plain": "doc{}", "splits": "train:{}", "arxiv": "oai:arXiv.org:0704.{}"}
    found = {}
    for label, pattern in names.items():
        lines = tmp_path / f"{label}.txt"
        lines.write_text("".join(f"{pattern.format(row)}\n" for row in range(60)))
        step = import_representations(tmp_path / "x.npz", tmp_path / label, label="x", ids=lines)
        step = grid([step.path], tmp_path / f"{label}.parquet", measure="cka", bootstrap=20)
        found[label] = read_results(step.path)[["low", "high"]]
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("".join(f"text {row // 2}\n" for row in range(60)))
    step = import_representations(tmp_path / "x.npz", tmp_path / "grouped", label="x", groups=pairs)
    grouped = load_representations(step.path)
    assert [*np.bincount(grouped.row_examples())] == [2] * 30
    for label in ("splits", "arxiv"):
        np.testing.assert_array_equal(found[label], found["plain"])
    (tmp_path / "short.txt").write_text("a\n")
    with pytest.raises(UserError, match=r"groups='.*': wanted a line for each of 60 rows, found 1"):
        import_representations(
            tmp_path / "x.npz", tmp_path / "no", label="x", groups=tmp_path / "short.txt"
        )
