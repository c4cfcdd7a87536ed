"""Runs one nvcc command and fails where a kernel takes too much: a CMake compiler launcher.

    nvcc_gate.py nvcc -Xptxas -v ... -c kernel.cu -o kernel.o

The report of ptxas (``-Xptxas -v``) is not printed. Registers and static shared memory of every
kernel are written to ``kernel.o.kernels``. The command fails, and names the kernel, for

* spill stores or loads, or a stack frame: a local array that is not in registers. A kernel may have
  them if a comment in its source gives a reason::

    // spills allowed: <kernel name>: <reason>

* more registers than its bound, `FEW` unless a comment in its source states another::

    // registers: <kernel>: <number>: <reason>

  ``<kernel>`` is the name, or the beginning of the name with template arguments, without spaces and
  namespaces: ``contract<TensorProduct<3>``. The longest one that fits counts. Registers decide how
  many blocks a multiprocessor holds; the reason says how many the bound allows. A bound more than
  `SLACK` above what every instance takes fails too, so that bounds stay near what is compiled.

* more static shared memory than `STATIC_SHARED`, which every device gives without being asked.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KERNEL = re.compile(r"Compiling entry function '(?P<symbol>\w+)' for '(?P<arch>\w+)'")
SPILLS = re.compile(
    r"(?P<frame>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads"
)
USED = re.compile(r"Used (?P<registers>\d+) registers(?:.*?(?P<shared>\d+) bytes smem)?")
ALLOWED = re.compile(r"// spills allowed: (?P<name>\w+): \S")
BOUND = re.compile(r"// registers: (?P<name>[\w<>,]+): (?P<most>\d+): \S")
FEW = 64  # blocks of 256 threads are then four a multiprocessor, half of its threads
SLACK = 24
STATIC_SHARED = 48 << 10


@dataclass
class Kernel:
    """What ptxas reports of one kernel for one architecture; sizes in bytes."""

    symbol: str
    arch: str
    name: str = ""  # with template arguments, without namespaces and spaces
    frame: int = 0
    stores: int = 0
    loads: int = 0
    registers: int = 0
    shared: int = 0

    def __str__(self) -> str:
        """Return the name for messages."""
        return f"{self.name or self.symbol} ({self.arch})"


def kernels_of(report: str) -> list[Kernel]:
    """Return the kernels of a ptxas report."""
    found: list[Kernel] = []
    for line in report.splitlines():
        if match := KERNEL.search(line):
            found.append(Kernel(match["symbol"], match["arch"]))
        elif found and (match := SPILLS.search(line)):
            found[-1].frame += int(match["frame"])
            found[-1].stores += int(match["stores"])
            found[-1].loads += int(match["loads"])
        elif found and (match := USED.search(line)):
            found[-1].registers = int(match["registers"])
            found[-1].shared = int(match["shared"] or 0)
    for kernel, name in zip(found, _names([kernel.symbol for kernel in found]), strict=True):
        kernel.name = name
    return found


def _names(symbols: list[str]) -> list[str]:
    """Return ``contract<TensorProduct<3>>`` for the symbol of ``simcore::cuda::contract<...>``."""
    done = subprocess.run(
        ["c++filt"], input="\n".join(symbols), text=True, capture_output=True, check=True
    )
    return [_short(name) for name in done.stdout.splitlines()]


def _short(demangled: str) -> str:
    name = re.sub(r"\(anonymous namespace\)::|\b\w+::", "", demangled)
    name = re.sub(r"\((?:int|bool|\w*Entry)\)", "", name)  # of template arguments: (int)3
    depth = 0
    for at, letter in enumerate(name):  # the parameters begin where no template is open
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            name = name[:at]
            break
    return name.removeprefix("void ").replace(" ", "")


def complaints(kernels: list[Kernel], allowed: set[str], bounds: dict[str, int]) -> Iterator[str]:
    """Yield a line for each kernel that takes more than it may."""
    for kernel in kernels:
        permitted = kernel.name.partition("<")[0] in allowed
        if kernel.stores + kernel.loads and not permitted:
            yield (
                f"registers spill: {kernel}: {kernel.stores} bytes spill stores, {kernel.loads} "
                "bytes spill loads"
            )
        elif kernel.frame and not permitted:
            yield f"{kernel}: wanted no stack frame, got {kernel.frame} bytes"
        bound = _bound_of(kernel, bounds)
        most = bounds.get(bound, FEW)
        if kernel.registers > most:
            yield f"{kernel}: wanted at most {most} registers, got {kernel.registers}"
        if kernel.shared > STATIC_SHARED:
            yield (
                f"{kernel}: wanted at most {STATIC_SHARED} bytes of static shared memory, got "
                f"{kernel.shared}"
            )
    for name, most in bounds.items():
        taken = [kernel.registers for kernel in kernels if _bound_of(kernel, bounds) == name]
        if taken and max(taken) + SLACK < most:
            yield f"{name}: wanted a bound within {SLACK} of {max(taken)} registers, got {most}"


def _bound_of(kernel: Kernel, bounds: dict[str, int]) -> str:
    """Return the key of the bound that counts for a kernel, or an empty one."""
    fitting = [
        name
        for name in bounds
        if kernel.name.startswith(name) and (kernel.name + "<")[len(name) :][:1] in "<>,"
    ]
    return max(fitting, key=len, default="")


def _texts(sources: list[Path]) -> list[str]:
    """Return the texts of the sources, or of all of csrc/cuda where they are in it."""
    rooms = {next((p for p in s.parents if p.name == "cuda"), s.parent) for s in sources}
    files = {file for room in rooms for file in room.rglob("*.cu*")}
    return [file.read_text() for file in sorted(files)]


def allowed_in(sources: list[Path]) -> set[str]:
    """Return the kernels that the sources, or headers of csrc/cuda beside them, allow to spill."""
    return {m["name"] for text in _texts(sources) for m in ALLOWED.finditer(text)}


def bounds_in(sources: list[Path]) -> dict[str, int]:
    """Return the bounds that the sources, or headers of csrc/cuda beside them, state."""
    return {m["name"]: int(m["most"]) for text in _texts(sources) for m in BOUND.finditer(text)}


def _record(kernels: list[Kernel], command: list[str]) -> None:
    """Write what each kernel takes beside the object that the command makes."""
    if "-o" in command[:-1]:
        lines = [
            f"{kernel.registers}\t{kernel.shared}\t{kernel.arch}\t{kernel.name}\n"
            for kernel in sorted(kernels, key=lambda kernel: -kernel.registers)
        ]
        table = "registers\tshared bytes\tarchitecture\tkernel\n" + "".join(lines)
        Path(command[command.index("-o") + 1] + ".kernels").write_text(table)


def main(command: list[str]) -> int:
    """Run the command; return its exit code, or 1 where a kernel takes more than it may."""
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
    kernels = kernels_of(done.stderr)
    if not any(kernel.registers for kernel in kernels):
        print(f"nvcc_gate: {sources[0]}: no report of ptxas; -Xptxas -v?", file=sys.stderr)
        return 1
    _record(kernels, command)
    found = [*complaints(kernels, allowed_in(sources), bounds_in(sources))]
    for line in found:
        print(f"nvcc_gate: {line}", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
