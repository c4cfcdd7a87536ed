"""Engines: executors on other machines, and what a job takes of a node.

An engine is an executor of `concurrent.futures`: it takes calls where one of its `slots` is free.
The end of a process is the exception `job.Died` of its future. Checks, retries, and what to do next
are no business of executors, and no step depends on the one that runs it.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
import uuid
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ByteSize, Field

from simlab.errors import UserError, argument, one_of
from simlab.sweeps import plan as kinds
from simlab.sweeps.job import Answer, Order
from simlab.sweeps.pool import Pool, keep_imports

GB = 10**9
_ID = ".id-"  # a file in the folder that the processes of one driver see
_ID_SECONDS = 5.0
_PATIENCE_SECONDS = 60.0  # a network file system remembers for so long that a file is not there
_TICK_SECONDS = 0.1
_MOUNTS = Path("/proc/self/mounts")
# Options by which locks of a file system stay on one machine (mount.lustre(8), nfs(5)).
_LOCAL_LOCKS = {
    "lustre": ("localflock",),
    **dict.fromkeys(("nfs", "nfs4"), ("nolock", "local_lock=all", "local_lock=flock")),
}


class Remote(Executor):
    """Processes on other machines, which all see the folder of the sweep under one name."""

    several = True  # whether jobs run on several machines

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root, self.token = Path(os.path.abspath(root)), uuid.uuid4().hex[:12]
        self._near: Pool | None = None
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._new: list[tuple[Future[Any], Callable[..., Any], Order]] = []
        self._open: dict[Any, Future[Any]] = {}  # by what the engine calls the job
        self._broken: Exception | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True, name="executor")

    def __enter__(self) -> Self:
        if self.several and (reason := local_locks(self.root)) is not None:
            raise UserError(
                f"{argument('out', self.root)}: wanted a folder whose locks hold on all nodes of "
                f"the cluster, found that {reason}"
            )
        for mark in self.root.glob(f"{_ID}*"):  # of drivers that were killed
            mark.unlink(missing_ok=True)
        (self.root / f"{_ID}{self.token}").touch()
        self._thread.start()
        return self

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
    def send(self, kind: str, calls: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        """Start calls of a kind, as arguments of `answer`; return what the engine calls them."""

    @abstractmethod
    def collect(self, calls: Sequence[Any]) -> Iterator[tuple[Any, Answer | Exception]]:
        """Yield the calls that have ended, with their results."""

    @abstractmethod
    def end(self, calls: Sequence[Any]) -> None:
        """End calls that run."""

    def _serve(self) -> None:
        try:
            while not self._ended.wait(_TICK_SECONDS):
                with self._lock:
                    by_kind: dict[str, dict[Future[Any], tuple[Any, ...]]] = defaultdict(dict)
                    for future, fn, order in self._new:
                        by_kind[order.job.kind][future] = fn, order, self.token, os.getcwd()
                    for kind, new in by_kind.items():
                        self._open |= zip(self.send(kind, [*new.values()]), new, strict=True)
                    self._new.clear()
                for call, result in list(self.collect(list(self._open))):
                    future = self._open.pop(call)
                    if isinstance(result, Exception):
                        future.set_exception(result)
                    else:
                        future.set_result(result)
        except Exception as error:  # the driver finds it in its futures
            with self._lock:
                self._broken = error
                for future in {*self._open.values(), *(future for future, *_ in self._new)}:
                    future.set_exception(error)


def answer(
    fn: Callable[[Order], Answer], order: Order, token: str, start: str
) -> Answer | UserError:
    """Do an order on a node, which prints to a file; an error if it sees no file of the driver."""
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
    file = root / "log" / f"worker-{socket.gethostname()}.txt"
    with file.open("a") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        result = fn(order)
    keep_imports()
    return result


def load(engine: str, package: str) -> Any:
    """Import the package of an engine."""
    try:
        return import_module(package)
    except ImportError as error:
        from simcore._optional import install_command

        raise UserError(
            f"{argument('engine', engine)}: wanted the package {package}, found: {error}; install "
            f"it with `{install_command(engine)}`"
        ) from None


def local_locks(path: Path, listing: Path = _MOUNTS) -> str | None:
    """Return why locks on `path` keep no other machine off, by the options of its mount."""
    real, found = Path(os.path.realpath(path)), (Path(), "", "")
    text = listing.read_text("utf-8", "surrogateescape") if listing.exists() else ""
    for line in text.splitlines():  # proc(5), fstab(5)
        _, mount, kind, options, *_ = line.split()
        point = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), mount))
        # A later mount on the same folder hides the earlier one.
        if real.is_relative_to(point) and len(point.parts) >= len(found[0].parts):
            found = point, kind, options
    point, kind, options = found
    local = next((o for o in _LOCAL_LOCKS.get(kind, ()) if o in options.split(",")), None)
    return local and f"{point} is mounted with the option {local} ({kind})"


@dataclass(frozen=True)
class Resources:
    """What a node has, or the room that is set aside there for a job, which may take more."""

    gpus: float = 0  # number of GPUs; a fraction lets several jobs share one
    cores: int = 0  # number of cores; 0 is as many as the job has threads
    memory: int = 4 * GB  # bytes


_WITH_MODEL = Resources(gpus=1, memory=6 * GB)
_WITH_TABLES = Resources(cores=1, memory=GB)
RESOURCES: Mapping[str, Resources] = {
    **dict.fromkeys((kinds.BASES, kinds.GRID, kinds.ALIGN), Resources()),
    **dict.fromkeys((kinds.COMPLEXITY, kinds.LOCALIZE), Resources()),
    **dict.fromkeys((kinds.SCORES, kinds.BLOCKS, kinds.FREEZE, kinds.BASELINES), _WITH_TABLES),
}


def fitting(
    kind: str,
    chosen: Mapping[str, Mapping[str, Any]],
    threads: int,
    nodes: Sequence[Resources] | None = None,
) -> Resources:
    """Return the resources of a kind of job: those in `chosen` (`parse_resources`) or the usual."""
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


class _Chosen(BaseModel, extra="forbid"):
    """Values of `Resources` that somebody chose."""

    gpus: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0
    cores: Annotated[int, Field(ge=1)] = 1
    memory: Annotated[ByteSize, Field(gt=0)] = ByteSize(0)


def parse_resources(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read texts such as ``finetune:gpus=0.5,memory=16GB`` into values by kind."""
    values: dict[str, dict[str, Any]] = defaultdict(dict)
    for text in texts:
        kind, _, rest = text.partition(":")
        try:
            pairs = {name.strip(): n for name, n in (pair.split("=") for pair in rest.split(","))}
            chosen = _Chosen.model_validate(pairs)
            is_good = kind in kinds.KINDS and (chosen.gpus <= 1 or chosen.gpus.is_integer())
        except ValueError:  # of pydantic, or a pair that is none
            is_good = False
        if not is_good:
            raise UserError(
                f"{argument('resources', text)}: wanted KIND:gpus=NUMBER,cores=NUMBER,memory=SIZE "
                f"(one or more of the three) with a kind that is {one_of(kinds.KINDS)}, a whole "
                "number of GPUs or a fraction of one, cores from 1, and a size such as 16GB"
            )
        values[kind] |= chosen.model_dump(exclude_unset=True)
    return values
