"""The safetensors library reads files that were filled piece by piece."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from simlab.errors import WriteError
from simlab.store.arrays import create_safetensors, flush_arrays, map_safetensors
from support.lab.disks import mounted_disk


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


def test_a_file_that_does_not_fit_is_refused_before_it_is_mapped(tmp_path, monkeypatch):
    def refuse(descriptor, begin, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    match = (
        r"a.safetensors: wanted to write 4,\d{3} bytes there, found: No space left on device "
        r"\([\d,]+ bytes free\)$"
    )
    with pytest.raises(WriteError, match=match):
        create_safetensors(tmp_path / "a.safetensors", {"a": (1000,)})
    assert (tmp_path / "a.safetensors").stat().st_size == 0


FILL = """
import sys
from pathlib import Path
from simlab.store.arrays import create_safetensors
from simlab.errors import WriteError
try:
    create_safetensors(Path(sys.argv[1]), {"a": (int(sys.argv[2]),)})["a"][:] = 1
except WriteError as error:
    print(error)
"""


def test_a_small_disk(tmp_path):
    """Fill the disk in a child process, which a write to a mapping without room would kill."""
    with mounted_disk(tmp_path / "disk") as disk:
        disk.resize(65_536)
        file = disk.path / "a.safetensors"
        run = [sys.executable, "-c", FILL, str(file)]
        done = subprocess.run([*run, "20000"], capture_output=True, text=True, check=True)
        wanted = f"{file}: wanted to write 80,072 bytes there, found: No space left on device"
        assert done.stdout.startswith(f"{wanted} (")
        file.unlink()
        done = subprocess.run([*run, "10000"], capture_output=True, text=True, check=True)
        assert done.stdout == ""
        assert load_file(file)["a"].tolist() == [1] * 10_000


def test_what_the_disk_refuses_later_is_heard_of(tmp_path, monkeypatch):
    """A network file system or a thin volume may promise room that it does not have."""
    arrays = create_safetensors(tmp_path / "a.safetensors", {"a": (10,), "none": (0, 2)})
    flush_arrays(arrays.values())

    def refuse(self):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np.memmap, "flush", refuse)
    with pytest.raises(WriteError, match=r"a.safetensors: wanted to write there, found: No space"):
        flush_arrays(arrays.values())


def test_tensors_are_mapped_as_the_library_loads_them(tmp_path):
    path = tmp_path / "a.safetensors"
    for dtype in ("float32", "float16"):
        arrays = create_safetensors(path, {"a": (3, 2), "none": (0, 2), "b": (5,)}, dtype)
        arrays["a"][:] = np.arange(6).reshape(3, 2)
        flush_arrays(arrays.values())
        mapped = map_safetensors(path)
        loaded = load_file(path)
        assert mapped.keys() == loaded.keys()
        for name, array in mapped.items():
            assert array.dtype == loaded[name].dtype == dtype
            np.testing.assert_array_equal(array, loaded[name])
        assert not mapped["a"].flags.writeable
        path.unlink()
