"""Representation folders: damaged, foreign or differently ordered rows are refused."""

import pytest

from simlab import extract, load_representations
from simlab.errors import UserError
from simlab.representations.folder import describe, require_same_examples
from simlab.store.files import read_json, write_json


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
def test_other_examples_fail_loudly(tmp_path, tiny_bert, review_task, change, message):
    for name in ("x", "y"):
        extract(tiny_bert, review_task, tmp_path / name)
    manifest = read_json(tmp_path / "y" / "manifest.json")
    change(manifest)
    write_json(tmp_path / "y" / "manifest.json", manifest)
    x, y = load_representations(tmp_path / "x"), load_representations(tmp_path / "y")
    require_same_examples(x, x)
    with pytest.raises(UserError, match=message):
        require_same_examples(x, y)


def test_one_layer_is_called_a_layer(tmp_path):
    manifest = {"kind": "imported", "n": 1200, "widths": [24], "layers": 1, "max_length": None}
    write_json(tmp_path / "manifest.json", manifest)
    assert describe(tmp_path) == "1 layer of 1,200 x 24"


def test_a_damaged_data_file_is_refused(tmp_path, tiny_bert, review_task):
    extract(tiny_bert, review_task, tmp_path / "reps")
    data = tmp_path / "reps" / "cls.safetensors"
    content = bytearray(data.read_bytes())
    content[-1] ^= 1
    data.write_bytes(content)
    with pytest.raises(UserError, match=r"cls\.safetensors"):
        load_representations(tmp_path / "reps")
