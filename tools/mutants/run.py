"""Hold the tests to planted faults: ``python -m tools.mutants.run [PATCH ...]`` (`make mutants`).

Each patch is applied to a copy of the checkout in build/mutants. The tests of the changed file run
first, then those of its room, and of the deeper tiers, until one fails that passes without the
patch. The table has that test and its tier; a patch with a row there is run only if it is named.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATCHES = Path(__file__).parent / "patches"
TABLE = Path(__file__).parent / "table.csv"
TREE = ROOT / "build" / "mutants"
COLUMNS = ("patch", "file", "tier", "test")
QUICK, DEEP, SLOW = "not slow and not deep", "deep and not slow", "slow"
# Those of a file are its own; a room has all of these folders.
ROOMS = {
    "simcore": [f"tests/{name}" for name in (
        *("grid", "hsic", "numerics", "spectral", "neighbours", "neurons", "rsa", "attention"),
        *("coupling", "align", "stats", "recording", "reference", "project"),
    )],
    "simlab": ["tests/simlab", "tests/project", "tests/docs"],
    "bench": ["bench", "tests/project"],
}  # fmt: skip
ROOMS["csrc"] = ROOMS["simcore"]
# What `make test-cpp` runs first; the kernels of csrc/cuda run on the host.
CPP = """
cmake -S . -B build/cpp -G Ninja -DSIMCORE_SANITIZE=address,undefined -DSIMCORE_CUDA_HOST=ON
cmake --build build/cpp
ctest --test-dir build/cpp --output-on-failure --parallel 2
"""
# A test that waits for ever is a fault that was found.
SECONDS_OF_A_TEST, SECONDS = 300, 3600


def shell(*command: str, seconds: float = SECONDS, check: bool = True) -> tuple[int, str]:
    """Run a command in the copy; return its exit code, 124 after too long, and its output."""
    paths = os.pathsep.join(str(TREE / name) for name in ("", "python", "tests"))
    env = {**os.environ, "PYTHONPATH": paths, "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            command, cwd=TREE, env=env, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return 124, ""
    if check and done.returncode:
        raise SystemExit(f"mutants: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.returncode, done.stdout + done.stderr


def make_tree() -> None:
    """Copy what git knows of the checkout, and compile its extension."""
    listed = subprocess.check_output(("git", "ls-files", "-z"), cwd=ROOT, text=True)
    names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        source, copy = (ROOT / name).read_bytes(), TREE / name
        # A file that is the same keeps its time, so that little is compiled again.
        if not copy.exists() or copy.read_bytes() != source:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source)
            copy.chmod((ROOT / name).stat().st_mode)
    for folder in ("simcore", "python", "tests", "csrc", "bench"):
        for path in (TREE / folder).rglob("*.*"):
            is_source = path.suffix in (".py", ".cpp", ".h", ".cu", ".csv")
            if is_source and path.relative_to(TREE).as_posix() not in names:
                path.unlink()
    code, said = compile_extension()
    if code:
        raise SystemExit(f"mutants: the copy does not compile\n{said}")


def compile_extension() -> tuple[int, str]:
    """Compile csrc where it changed."""
    return shell(sys.executable, "setup.py", "build_ext", "--inplace", check=False)


def own_tests(file: str) -> list[str]:
    """Return the tests of a module: those of its name, and those of its rows in tests/README.md."""
    stem = Path(file).stem.strip("_").split("_impl")[0]
    of_simlab = "simlab" in Path(file).parts
    named = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "tests").rglob(f"test_{stem}.py"))
        if ("simlab" in path.parts) == of_simlab
    ]
    for line in (ROOT / "tests" / "README.md").read_text().splitlines():
        modules, *tests = [re.findall("`([^`]+)`", cell) for cell in line.split(" | ")]
        if tests and any(fnmatch(file, pattern) for pattern in modules):
            named += [f"tests/{name}" for name in tests[0]]
    family = Path(file).parts[2] if file.startswith("csrc/") else ""
    if (ROOT / "tests" / family).is_dir() and family:
        named.append(f"tests/{family}")
    return list(dict.fromkeys(named))


def stages(room: str, file: str) -> Iterator[tuple[str, list[str], str]]:
    """Yield what runs, one after the other: the tier, the tests, and which of them.

    No tests are the C++ tests.
    """
    own = own_tests(file)
    if file.startswith("csrc/cuda"):
        yield "quick", [], ""
        own = ["tests/project/test_emulated_kernels.py"]
    if own:
        yield "quick", own, QUICK
    if file.startswith("csrc/cpu"):
        yield "quick", [], ""
    yield "quick", ROOMS[room], QUICK
    for tier, which in (("deep", DEEP), ("slow", SLOW)):
        if own:
            yield tier, own, which
        yield tier, ROOMS[room], which


def first_failure(tests: list[str], which: str) -> str:
    """Return the first test that fails, or nothing."""
    if not tests:
        code, said = shell("bash", "-ec", CPP, check=False)
        found = re.search(r"FAILED:\s+\d+ - (\S+)", said)
        return "" if code == 0 else f"test-cpp: {found[1] if found else 'it does not compile'}"
    command = (sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider")
    limits = (f"--timeout={SECONDS_OF_A_TEST}", "-m", which)
    limits += ("--ignore=tests/project/test_mutants.py",)  # what is applied applies no more
    code, said = shell(*command, *limits, *tests, check=False)
    if code in (0, 5):
        return ""
    if "ERROR: file or directory not found" in said:
        raise SystemExit(f"mutants: no such tests\n{said}")
    found = re.search(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", said, re.MULTILINE)
    return found[1] if found else f"pytest ended with code {code}"


def killer(room: str, file: str, patch: Path) -> tuple[str, str]:
    """Return the tier and the name of the first test that fails with a patch alone."""
    shell("git", "apply", str(patch))
    libraries = (TREE / "simcore").glob("*.so") if room == "csrc" else ()
    compiled = {path: path.read_bytes() for path in libraries}
    try:
        if room == "csrc" and compile_extension()[0]:
            return "quick", "it does not compile"
        found = ("none", "")
        for tier, tests, which in stages(room, file):
            if failed := first_failure(tests, which):
                found = tier, failed
                break
    finally:
        shell("git", "apply", "-R", str(patch))
        # What is changed next is compiled with the file that is whole again.
        for path, unpatched in compiled.items():
            path.unlink()
            path.write_bytes(unpatched)
    if "::" in found[1] and first_failure([found[1]], "slow or not slow"):
        raise SystemExit(f"mutants: {found[1]} fails without {patch.name} too")
    return found


def read() -> dict[str, dict[str, str]]:
    """Return the rows of the table, by patch."""
    if not TABLE.exists():
        return {}
    with TABLE.open() as file:
        return {row["patch"]: row for row in csv.DictReader(file)}


def write(rows: dict[str, dict[str, str]]) -> None:
    """Write the rows of the patches that are there."""
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            rows[name] for name in sorted(rows) if (PATCHES / f"{name}.patch").exists()
        )


def main() -> int:
    """Run patches, write the table, and return 1 if one survived."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "patches", nargs="*", help="names without .patch; default: those without a row"
    )
    asked = parser.parse_args()
    rows = read()
    names = asked.patches or [p.stem for p in sorted(PATCHES.glob("*.patch")) if p.stem not in rows]
    make_tree()
    survived = []
    for name in names:
        patch = PATCHES / f"{name}.patch"
        (file,) = re.findall(r"^\+\+\+ b/(.+)$", patch.read_text(), re.MULTILINE)
        tier, test = killer(name.split("-")[0], file, patch)
        rows[name] = dict(zip(COLUMNS, (name, file, tier, test), strict=True))
        write(rows)
        survived += [name] if tier == "none" else []
        print(f"{name}: {tier} {test}", flush=True)
    return bool(survived)


if __name__ == "__main__":
    raise SystemExit(main())
