"""The rooms of csrc: what shared code and each family may include, and no circle among files."""

import re
from pathlib import Path

from support.families import FAMILIES
from support.imports import find_circle

ROOT = Path(__file__).resolve().parent
while not (ROOT / "pyproject.toml").exists():
    ROOT = ROOT.parent
CSRC = ROOT / "csrc"
SHARED = {  # a room and what it may include beside itself
    "core/math": (),
    "core/views": ("core/math",),
    "cpu/base": ("core/math", "core/views"),
    "cpu/isa": ("core/math", "core/views", "cpu/base"),
    "cpu/products": ("core/math", "core/views", "cpu/base", "cpu/isa"),
    "cuda/base": ("core/math", "core/views"),
    "cuda/products": ("core/math", "core/views", "cuda/base"),
}

FILES = {str(f.relative_to(CSRC)): f.read_text() for f in sorted(CSRC.rglob("*.*")) if f.is_file()}
INCLUDES = {
    file: [name for name in re.findall(r'#include "([^"]+)"', text) if name in FILES]
    for file, text in FILES.items()
}


def room_of(file: str) -> str:
    return file.rpartition("/")[0]


def allowed(room: str) -> set[str]:
    """The rooms that files of `room` may include."""
    device, _, name = room.partition("/")
    if room in SHARED:
        return {room, *SHARED[room]}
    assert name in FAMILIES, f"csrc/{room}: neither a family nor shared"
    shared = (device + "/products", device + "/base", "cpu/isa" if device == "cpu" else device)
    return {room, "core/math", "core/views", *shared}


def strangers(file: str) -> list[str]:
    """What an adapter of one family includes of another's."""
    family = Path(file).name.partition("_")[0]
    others = [f for f in FAMILIES if f != family] if family in FAMILIES else []
    pattern = re.compile(rf"(cpu|cuda)/({'|'.join(others)})/|torch/({'|'.join(others)})_")
    return [name for name in INCLUDES[file] if others and pattern.match(name)]


def test_a_file_includes_only_what_its_room_may():
    of_rooms = [file for file in FILES if not file.startswith(("python/", "torch/"))]
    pairs = [(file, name) for file in of_rooms for name in INCLUDES[file]]
    assert not [(f, name) for f, name in pairs if room_of(name) not in allowed(room_of(f))]


def test_one_folder_knows_python_and_none_the_headers_of_torch():
    header = re.compile(r"#include <((?:torch|ATen|c10|caffe2|pybind11)/.*|Python.h)>")
    taken = [(file, name) for file, text in FILES.items() for name in header.findall(text)]
    assert taken
    assert not [
        (file, name)
        for file, name in taken
        if not (file.startswith("python/") and name.startswith("pybind11/"))
    ]


def test_an_adapter_includes_no_other_family():
    adapters = [file for file in FILES if file.startswith("torch/")]
    assert len(adapters) > len(FAMILIES)
    assert not {file: names for file in adapters if (names := strangers(file))}


def test_no_circle():
    assert find_circle({file: set(names) for file, names in INCLUDES.items()}) == []


TEXTS = (".cpp", ".cuh", ".cu", ".h", ".py", ".md")


def test_files_that_texts_name_exist():
    folders = ("csrc", "simcore", "python", "tests", "bench", "docs", "examples", "tools")
    texts = [f for folder in folders for f in (ROOT / folder).rglob("*") if f.suffix in TEXTS]
    texts = [f for f in texts if "node_modules" not in f.parts]
    texts += ROOT.glob("*.md")
    named = r"(?<![\w/])(?:csrc|simcore|tests|bench|examples|tools)(?:/\w+)+\.(?:cpp|cuh|cu|h|py)\b"
    found = {(f.name, name) for f in texts for name in re.findall(named, f.read_text())}
    assert len(found) > len(FAMILIES)
    assert not [pair for pair in sorted(found) if not (ROOT / pair[1]).exists()]


def test_includes_are_found():
    assert room_of("cpu/hsic/gram.cpp") == "cpu/hsic"
    assert sum(map(len, INCLUDES.values())) > len(FILES)
    assert "cpu/neurons" not in allowed("cpu/hsic")
    assert "cpu/isa" not in allowed("cpu/base")


def test_memory_of_a_device_is_asked_for_in_one_place():
    """Elsewhere it would be a RuntimeError, where simlab waits for a torch.OutOfMemoryError."""
    asks = re.compile(r"(?<!Tensor )(?<!\.)\bempty\(|aten::(new_)?(empty|zeros|full)")
    adapters = [file for file in FILES if re.match(r"torch/.*_cuda\.cpp$", file)]
    assert adapters
    assert not [file for file in adapters if asks.search(FILES[file])]
