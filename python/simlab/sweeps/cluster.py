"""The Ray executor: processes on the nodes of a cluster, which all see the folder of the sweep.

Ray finds a node with room for a job (`engines.fitting`), starts a process there, and says when a
process or a node has died. Paths travel and never arrays, and Ray's own retries are off, because
the driver decides what may be tried again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

from simlab.errors import UserError, argument, first_line
from simlab.store.console import note
from simlab.sweeps.engines import Remote, Resources, answer, fitting, load, parse_resources
from simlab.sweeps.job import Answer, Died
from simlab.sweeps.pool import thread_variables

_LOOK_SECONDS = 5.0  # between two looks at the nodes
_LISTEN_SECONDS = 20.0  # for the head to accept a connection


class RayExecutor(Remote):
    """Processes on the nodes of a Ray cluster; options as of `Sweep.run`."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        workers: int = 0,
        threads: int | None = None,
        address: str | None = None,
        resources: Sequence[str] = (),
    ) -> None:
        super().__init__(root)
        self.workers, self.resources = workers, parse_resources(resources)
        self.threads, self.address = threads or 0, address or ""
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # Ray reads it when it is imported
        self._ray = load("ray", "ray")
        self._is_lost = False
        self._nodes: list[Resources] = []
        if not address:
            raise UserError(
                f"{argument('engine', 'ray')}: wanted {argument('address')} beside it, HOST:PORT "
                "of the head of a Ray cluster or auto, found none"
            )
        if self._ray.is_initialized():
            raise UserError(
                f"{argument('engine', 'ray')}: wanted a process that has no connection to Ray, "
                "found one; call ray.shutdown() first"
            )

    def __enter__(self) -> Self:
        try:
            self._connect()
            self._look()
            self.threads = self.threads or share_of(self._nodes, self.workers)
            variables = {"env_vars": thread_variables(self.threads)}
            environment = {"max_retries": 0, "runtime_env": variables}
            # A process that has used a GPU keeps its memory, so that it does one job alone.
            self._on_cpu = self._ray.remote(**environment, max_calls=0)(answer)
            self._on_gpu = self._ray.remote(**environment, max_calls=1)(answer)
            self.several = len(self._nodes) > 1
            return super().__enter__()
        except BaseException:
            self._ray.shutdown()
            raise

    @property
    def slots(self) -> int:
        """Return the most jobs at once: one at least, which waits until a node comes."""
        room = sum(node.cores // self.threads for node in self._nodes)
        return max(1, min(room, self.workers or room))

    def send(self, kind: str, calls: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        """Give calls to Ray, where they wait for nodes with room."""
        takes = fitting(kind, self.resources, self.threads, self._nodes)
        room = {"num_cpus": takes.cores, "num_gpus": takes.gpus, "memory": takes.memory}
        function = (self._on_gpu if takes.gpus else self._on_cpu).options(name=kind, **room)
        return [function.remote(*call) for call in calls]

    def collect(self, calls: Sequence[Any]) -> Iterator[tuple[Any, Answer | Exception]]:
        """Yield the calls whose answer has come, or whose process or node has died."""
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._look()
        ready = self._ray.wait(calls, num_returns=len(calls), timeout=0)[0] if calls else ()
        errors = self._ray.exceptions
        for reference in ready:
            try:
                yield reference, self._ray.get(reference)
            except errors.RayError as error:
                outside = isinstance(error, errors.NodeDiedError)
                yield reference, Died(first_line(error), outside)

    def end(self, calls: Sequence[Any]) -> None:
        """End calls, and leave the cluster."""
        for reference in () if self._is_lost else calls:
            with contextlib.suppress(Exception):
                self._ray.cancel(reference, force=True)
        self._ray.shutdown()

    def _connect(self) -> None:
        where = argument("address", self.address)
        wanted = "HOST:PORT of the head of a Ray cluster"
        try:  # Ray itself would wait for many minutes
            _require_listener(self.address)
        except (OSError, ValueError, OverflowError) as error:
            raise UserError(f"{where}: wanted {wanted}, found: {error}") from None
        logging.getLogger("ray").setLevel(logging.ERROR)
        handler = signal.getsignal(signal.SIGTERM)  # Ray sets another
        try:
            quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
            self._ray.init(address=self.address, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            raise UserError(f"{where}: wanted {wanted}, found: {first_line(error)}") from error
        finally:
            if handler is not None and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)

    def _look(self) -> None:
        """Find the nodes that are there now."""
        self._looked = time.monotonic()
        head = self._ray.get_runtime_context().gcs_address
        try:  # Ray itself would wait for a minute, and then end this process without a word
            _require_listener(head)
        except (OSError, ValueError) as error:
            self._is_lost = True
            raise UserError(
                f"{argument('engine', 'ray')}: wanted the head of the cluster at {head}, found "
                f"that it is gone ({error}); what is done stays: start a cluster, and repeat the "
                "command"
            ) from None
        has = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        nodes = [
            Resources(one.get("GPU", 0), int(one["CPU"]), int(one.get("memory", 0)))
            for one in has
            if one.get("CPU", 0) >= 1
        ]
        if self._nodes and not nodes:
            note("all nodes of the cluster have gone; the sweep waits for one to come")
        self._nodes = nodes or self._nodes


def share_of(nodes: Sequence[Resources], workers: int) -> int:
    """Return the threads of a job: an equal share of all cores, or the least that a GPU has."""
    each = [node.cores // (1 if workers else max(1, int(node.gpus))) for node in nodes] or [1]
    shared = [sum(node.cores for node in nodes) // workers] if workers else []
    return max(1, min(each + shared))


def _require_listener(address: str) -> None:
    """Raise OSError if nothing listens at an address; a word such as ``auto`` has no port."""
    host, colon, port = address.rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), _LISTEN_SECONDS).close()
