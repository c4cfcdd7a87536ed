"""Engines: executors on other machines, and what a job takes of a node.

An engine is an executor of `concurrent.futures`: it takes calls where one of its `slots` is free,
and gives futures, of which one that is `running` has begun. The end of a process is the exception
`job.Died` of its future. Checks, retries, and what to do next are no business of executors, and no
step depends on the one that runs it.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import socket
import sys
import threading
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ByteSize, TypeAdapter, ValidationError

from simlab.errors import UserError, argument
from simlab.sweeps import plan as kinds
from simlab.sweeps.job import Answer, Order
from simlab.sweeps.outputs import names_in
from simlab.sweeps.pool import Pool, keep_imports

GB = 10**9
_SIZE = TypeAdapter(ByteSize)
_ID = ".id-"  # a file in the folder that the processes of one driver see
_ID_SECONDS = 5.0
_PATIENCE_SECONDS = 60.0  # a network file system remembers for so long that a file is not there
_TICK_SECONDS, _LOOK_SECONDS = 0.1, 1.0
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")
# Options by which locks of a file system stay on one machine (mount.lustre(8), nfs(5)).
_LOCAL_LOCKS = {
    "lustre": ("localflock",),
    "nfs": ("nolock", "local_lock=all", "local_lock=flock"),
    "nfs4": ("nolock", "local_lock=all", "local_lock=flock"),
}


class Remote(Executor):
    """Processes on other machines, which all see the folder of the sweep under one name.

    A thread sends calls and takes their results. A job runs when its folder in ``work/`` is there,
    however long its call waited in a queue. Downloads are done by a process of this machine,
    because nodes may have no network.

    `root`: the folder of the sweep. `several`: whether there are several machines.
    """

    def __init__(self, root: str | os.PathLike[str], several: bool = True) -> None:
        self.root, self.token = Path(os.path.abspath(root)), uuid.uuid4().hex[:12]
        if several and (reason := local_locks(self.root)) is not None:
            raise UserError(
                f"{argument('out', self.root)}: wanted a folder whose locks hold on all nodes of "
                f"the cluster, found that {reason}"
            )
        for mark in self.root.glob(f"{_ID}*"):  # of drivers that were killed
            mark.unlink(missing_ok=True)
        (self.root / f"{_ID}{self.token}").touch()
        self._near: Pool | None = None
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._new: list[tuple[Future[Any], Callable[..., Any], Order]] = []
        self._open: dict[Any, tuple[Future[Any], str]] = {}  # by what the engine calls the job
        self._broken: Exception | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True, name="executor")
        self._thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        """Call a function with an order on some node."""
        (order,) = args
        if order.job.kind == kinds.FETCH:
            self._near = self._near or Pool(1, self.root / "log", 1)
            return self._near.submit(fn, order)
        future: Future[Any] = Future()
        there = replace(order, root=str(self.root), patience=_PATIENCE_SECONDS)
        with self._lock:
            self._new.append((future, fn, there))
            if self._broken is not None:
                future.set_exception(self._broken)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the calls that run, and the connection."""
        self._ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self.end(list(self._open))
        self._open.clear()
        (self.root / f"{_ID}{self.token}").unlink(missing_ok=True)
        if self._near is not None:
            self._near.shutdown()

    @abstractmethod
    def send(self, calls: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        """Start calls, each the arguments of `answer`; return what the engine calls them."""

    @abstractmethod
    def collect(self, calls: Sequence[Any]) -> Iterator[tuple[Any, Answer | Exception]]:
        """Yield the calls that have ended, with their results."""

    @abstractmethod
    def end(self, calls: Sequence[Any]) -> None:
        """End calls that run."""

    def _serve(self) -> None:
        looked = 0.0
        try:
            while not self._ended.wait(_TICK_SECONDS):
                with self._lock:
                    if self._new:
                        self._send_new()
                for call, result in list(self.collect(list(self._open))):
                    _complete(self._open.pop(call)[0], result)
                if time.monotonic() - looked > _LOOK_SECONDS:
                    looked = time.monotonic()
                    self._note_begun()
        except Exception as error:  # the driver finds it in its futures
            with self._lock:
                self._broken = error
                for future in (*(f for f, _ in self._open.values()), *(f for f, *_ in self._new)):
                    future.set_exception(error)

    def _send_new(self) -> None:
        start = os.getcwd()
        calls = self.send([(fn, order, self.token, start) for _, fn, order in self._new])
        for call, (future, _, order) in zip(calls, self._new, strict=True):
            self._open[call] = future, order.job.key
        self._new.clear()

    def _note_begun(self) -> None:
        begun = {name.partition("-")[0] for name in names_in(self.root / "work")}
        for future, key in self._open.values():
            if key in begun and not future.running():
                future.set_running_or_notify_cancel()


def _complete(future: Future[Any], result: Answer | Exception) -> None:
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


def answer(
    fn: Callable[[Order], Answer], order: Order, token: str, start: str
) -> Answer | UserError:
    """Do an order on a node, whose processes print to a file of the folder.

    The result is an error if the node does not see the folder of the driver, or the driver has
    ended.
    """
    root = Path(order.root)
    until = time.monotonic() + _ID_SECONDS
    while not (root / f"{_ID}{token}").exists():
        if time.monotonic() > until:
            return UserError(
                f"{argument('out', root)}: wanted a folder that all nodes of the cluster share, "
                f"found that node {socket.gethostname()} does not see a file of its driver there"
            )
        time.sleep(_TICK_SECONDS)
    with contextlib.suppress(OSError):  # a node without it can do jobs without relative names
        os.chdir(start)
    with _printing_to(root / "log" / f"worker-{socket.gethostname()}.txt"):
        result = fn(order)
    keep_imports()
    return result


@contextlib.contextmanager
def _printing_to(file: Path) -> Iterator[None]:
    """Add to a file what the block prints, in whatever way; Ray prints between two orders."""
    outputs = {1: sys.stdout, 2: sys.stderr}
    before = {number: os.dup(number) for number in outputs}
    with file.open("ab") as log:
        try:
            for number, stream in outputs.items():
                stream.flush()
                os.dup2(log.fileno(), number)
            yield
        finally:
            for number, stream in outputs.items():
                stream.flush()
                os.dup2(before[number], number)
                os.close(before[number])


def local_locks(path: Path, listing: Path = _MOUNTS) -> str | None:
    """Return why locks on `path` keep no other machine off, by the options of its mount.

    `listing`: the list of mounts (proc(5)).
    """
    try:
        lines = listing.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    real, found = Path(os.path.realpath(path)), (Path(), "", set[str]())
    for line in lines:  # the mount before the hyphen, the file system after it
        before, _, after = line.partition(" - ")
        fields, (kind, *rest) = before.split(), after.split()
        point = Path(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        # A later mount on the same folder hides the earlier one.
        if real.is_relative_to(point) and len(point.parts) >= len(found[0].parts):
            found = point, kind, {*fields[5].split(","), *(rest[-1].split(",") if rest else ())}
    point, kind, options = found
    option = next((name for name in _LOCAL_LOCKS.get(kind, ()) if name in options), None)
    return option and f"{point} is mounted with the option {option} ({kind})"


@dataclass(frozen=True)
class Resources:
    """The room that is set aside on a node for jobs of one kind; no limit on what a job does."""

    gpus: float = 0  # number of GPUs; a fraction lets several jobs share one
    cores: int | None = None  # number of cores; None is as many as the job has threads
    memory: int = 4 * GB  # bytes


_WITH_MODEL = Resources(gpus=1, memory=6 * GB)
_WITH_TABLES = Resources(cores=1, memory=GB)
RESOURCES: Mapping[str, Resources] = {
    **dict.fromkeys(
        (kinds.BASES, kinds.GRID, kinds.ALIGN, kinds.COMPLEXITY, kinds.LOCALIZE), Resources()
    ),
    **dict.fromkeys((kinds.SCORES, kinds.BLOCKS, kinds.FREEZE, kinds.BASELINES), _WITH_TABLES),
}
NAMES = tuple(Resources.__dataclass_fields__)


@dataclass(frozen=True)
class Node:
    """The resources of a node of a cluster."""

    cores: int
    gpus: float
    memory: int


def share_of(nodes: Sequence[Node], workers: int) -> int:
    """Return the threads of each job, if nobody chooses them.

    With `workers`, all cores are shared equally. Without, the cores of a node are shared by its
    GPUs, or all belong to one job; the node where this is least counts for all.
    """
    least = min((node.cores // max(1, int(node.gpus)) for node in nodes), default=1)
    if workers:
        smallest = min((node.cores for node in nodes), default=1)
        least = min(smallest, sum(node.cores for node in nodes) // workers)
    return max(1, least)


def fitting(
    kind: str,
    chosen: Mapping[str, Mapping[str, Any]],
    threads: int,
    nodes: Sequence[Node] | None = None,
) -> Resources:
    """Return the resources of a kind of job.

    `chosen`: values by kind (`parse_resources`) that replace values of `RESOURCES`. `nodes`: the
    nodes, if they are known. No more memory is asked for than the largest has, and a GPU only where
    there is one; where the nodes are not known, GPUs are those in `chosen`.
    """
    usual, own = RESOURCES.get(kind, _WITH_MODEL), chosen.get(kind, {})
    cores = own.get("cores", usual.cores) or threads
    gpus = own.get("gpus", usual.gpus if any(node.gpus for node in nodes or ()) else 0)
    if nodes is None:
        return Resources(gpus, cores, own.get("memory", usual.memory))
    enough = [node for node in nodes if node.cores >= cores and node.gpus >= gpus]
    most = max((node.memory for node in enough), default=0)
    memory = own.get("memory", min(usual.memory, most))
    if memory > most or not enough:
        each = (f"{n.cores} cores, {n.gpus:g} GPUs, {n.memory:,} bytes" for n in nodes)
        has = "; ".join(sorted(set(each)))
        raise UserError(
            f"{argument('resources')}: wanted {cores} cores, {gpus:g} GPUs and {memory:,} bytes of "
            f"memory on one node for a job of kind {kind}, found nodes with {has or 'no cores'}; "
            f"choose {argument('threads')} or {argument('resources')}"
        )
    return Resources(gpus, cores, memory)


def parse_resources(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read texts such as ``finetune:gpus=0.5,memory=16GB`` into values by kind."""
    values: dict[str, dict[str, Any]] = {}
    for text in texts:
        kind, _, rest = text.partition(":")
        if kind not in kinds.KINDS:
            known = ", ".join(kinds.KINDS)
            raise UserError(
                f"{argument('resources', text)}: wanted one of {known} before ':', found {kind!r}"
            )
        for pair in rest.split(","):
            name, _, value = (part.strip() for part in pair.partition("="))
            if name not in NAMES:
                wanted = " or ".join(f"{known}=" for known in NAMES)
                raise UserError(f"{argument('resources', text)}: wanted {wanted}, found {pair!r}")
            values.setdefault(kind, {})[name] = _value(text, name, value)
    return values


_WANTED = {
    "gpus": "a number of GPUs, or a fraction of one",
    "cores": "a number of cores from 1",
    "memory": "a size such as 16GB",
}


def _value(text: str, name: str, value: str) -> float:
    with contextlib.suppress(ValueError, OverflowError, ValidationError):
        if name == "memory":
            if (size := int(_SIZE.validate_python(value))) > 0:
                return size
        else:
            number = float(value)
            if number.is_integer() and number >= (name == "cores"):
                return int(number)
            if name == "gpus" and 0 <= number < 1:
                return number
    raise UserError(f"{argument('resources', text)}: wanted {_WANTED[name]}, found {value!r}")


def megabytes(size: float) -> str:
    """Return a number of bytes as sbatch takes it."""
    return f"{math.ceil(size / 2**20)}M"
