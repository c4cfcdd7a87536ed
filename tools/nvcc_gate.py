"""Runs one nvcc command and fails where a kernel spills registers: a CMake compiler launcher.

    nvcc_gate.py nvcc -Xptxas -v ... -c kernel.cu

The report of ptxas (``-Xptxas -v``) is not printed. Each kernel with spill stores or loads is named
instead, and the command fails. A kernel may spill if a comment in its source allows the spills and
gives a reason::

    // spills allowed: <kernel name>: <reason>
"""

import re
import subprocess
import sys
from pathlib import Path

KERNEL = re.compile(r"Compiling entry function '(?P<symbol>\w+)' for '(?P<arch>\w+)'")
SPILLS = re.compile(r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
ALLOWED = re.compile(r"// spills allowed: (?P<name>\w+): \S")


def spilling(report: str, allowed: set[str]) -> list[str]:
    """Return a line for each kernel of a ptxas report that spills and is not allowed to."""
    found, kernel = [], None
    for line in report.splitlines():
        if match := KERNEL.search(line):
            kernel = match
        elif match := SPILLS.search(line):
            spills = int(match["stores"]) + int(match["loads"])
            # In a mangled name every identifier stands behind its length.
            known = kernel and any(f"{len(n)}{n}" in kernel["symbol"] for n in allowed)
            if spills and not known:
                where = f"{kernel['symbol']} ({kernel['arch']})" if kernel else "a function"
                found.append(f"{where}: {match[0]}")
    return found


def allowed_in(sources: list[Path]) -> set[str]:
    """Return the kernels that the sources, or headers of csrc/cuda beside them, allow to spill."""
    rooms = {next((p for p in s.parents if p.name == "cuda"), s.parent) for s in sources}
    files = {file for room in rooms for file in room.rglob("*.cu*")}
    return {m["name"] for file in sorted(files) for m in ALLOWED.finditer(file.read_text())}


def main(command: list[str]) -> int:
    """Run the command; return its exit code, or 1 where a kernel spills."""
    done = subprocess.run(command, text=True, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr)
        return done.returncode
    ptxas = ("ptxas info", "    ", "_Z")  # the report of -v; everything else is a message
    for line in done.stderr.splitlines():
        if line.strip() and not line.startswith(ptxas):
            print(line, file=sys.stderr)
    sources = [Path(argument) for argument in command if argument.endswith(".cu")]
    if not sources:
        return 0  # CMake also runs nvcc to link and to ask for its version
    if "spill stores" not in done.stderr:
        print(f"nvcc_gate: {sources[0]}: no report of ptxas; -Xptxas -v?", file=sys.stderr)
        return 1
    found = spilling(done.stderr, allowed_in(sources))
    for line in found:
        print(f"nvcc_gate: registers spill: {line}", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
