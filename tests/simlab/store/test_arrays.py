"""Files that are filled piece by piece are what the safetensors library reads."""

import numpy as np
from safetensors.numpy import load_file

from simlab.store.arrays import create_safetensors


def test_the_library_reads_what_was_filled_in_any_order(tmp_path):
    shapes = {"layer.0": (3, 2), "layer.10": (0, 4), "flat": (5,)}
    arrays = create_safetensors(tmp_path / "a.safetensors", shapes)
    arrays["flat"][2:] = [1, 2, 3]
    arrays["layer.0"][2] = [4, 5]
    read = load_file(tmp_path / "a.safetensors")
    assert {name: array.shape for name, array in read.items()} == shapes
    assert all(array.dtype == np.float32 for array in read.values())
    assert read["flat"].tolist() == [0, 0, 1, 2, 3]
    assert read["layer.0"].tolist() == [[0, 0], [0, 0], [4, 5]]


def test_a_file_without_a_single_number(tmp_path):
    create_safetensors(tmp_path / "a.safetensors", {"empty": (0, 3)})
    assert load_file(tmp_path / "a.safetensors")["empty"].shape == (0, 3)
