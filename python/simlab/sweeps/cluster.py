"""The Ray engine: processes on the nodes of a cluster, which all see the folder of the sweep.

Ray finds a node with room for a job (`resources`), starts a process there, and says when a process
or a node has died. All else is as on one machine: `node_worker` does an `Order`, paths travel and
never arrays, and Ray's own retries are off, because the driver decides what may be tried again.

Without an address, a cluster of this machine alone is started, which ends with the engine.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from simlab.errors import UserError, argument
from simlab.store.console import note
from simlab.sweeps.execute import CRASHED, STOPPED, Answer, Order
from simlab.sweeps.local import thread_variables
from simlab.sweeps.locking import Probe, local_locks
from simlab.sweeps.node_worker import Desk, check_node, do
from simlab.sweeps.resources import Node, fitting, parse_resources, share_of

_LOOK_SECONDS = 5.0  # between two looks at the nodes
_CHECK_SECONDS = 120.0  # for a node to start a process and look at the folder
_LISTEN_SECONDS = 10.0  # for the head to accept a connection
# Without its head, a process is ended by Ray after a minute.
_HEAD_SECONDS, _HEAD_LISTEN_SECONDS = 20.0, 5.0
_OBJECT_STORE = 100 << 20  # bytes for orders and answers, which are small
_LOOPBACK = "127.0.0.1"
# Whoever has this word may start jobs in a cluster of ours. Without it Ray would write its own word
# into the folder of the user.
_PASSWORD = uuid.uuid4().hex


class RayEngine:
    """Processes on the nodes of a Ray cluster.

    Parameters
    ----------
    root
        The folder of the sweep, which every node sees under this name.
    kinds
        The kinds of jobs to come.
    workers
        Most jobs at once, on all nodes together; 0 is as many as the nodes have room for.
    threads
        Threads of each job, and the cores that it takes; None is `share_of` the nodes.
    address
        The cluster, as Ray names it: ``auto``, or address and port of its head. None starts one.
    resources
        What jobs of a kind take, as `parse_resources` reads it.

    Raises
    ------
    UserError
        Ray is not installed, there is no such cluster, a node does not see the folder, or no node
        has what a job takes.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        kinds: Iterable[str] = (),
        *,
        workers: int = 0,
        threads: int | None = None,
        address: str | None = None,
        resources: Sequence[str] = (),
    ) -> None:
        self.workers, self.resources = workers, parse_resources(resources)
        self.desk = Desk(os.path.abspath(root), uuid.uuid4().hex[:12], os.getcwd())
        self._ray = load_ray(address)
        self._running: dict[Any, Order] = {}
        self._takes: dict[str, dict[str, float]] = {}
        self._nodes: list[Node] = []
        self._probe: Probe | None = None
        self._headless: float | None = None  # since when the head does not answer
        self._is_lost = False
        _require_no_connection(self._ray)
        self._own = None if address else _temporary_folder()
        try:
            self._connect(address)
            self._look()
            self.threads = threads or share_of(self._nodes, workers)
            self._environment = _environment(self.threads, own=address is None)
            self._check_nodes()
            for kind in kinds:
                self._takes[kind] = fitting(kind, self.resources, self._nodes, self.threads)
            # A process that has used a GPU keeps its memory, so that it does one job alone.
            self._do = self._function(do, max_calls=0)
            self._do_on_gpu = self._function(do, max_calls=1)
        except BaseException:
            self.close()
            raise

    def free(self) -> int:
        """Return how many more orders the nodes have room for."""
        self._look_at_times()
        room = sum(node.cores // self.threads for node in self._nodes)
        # One order at least: it waits until a node comes, and the driver waits with it.
        most = max(1, min(room, self.workers or room))
        return max(0, most - len(self._running))

    def submit(self, order: Order) -> None:
        """Give an order to Ray, where it waits for a node with room."""
        kind = order.job.kind
        if kind not in self._takes:
            self._takes[kind] = fitting(kind, self.resources, self._nodes, self.threads)
        takes = self._takes[kind]
        function = self._do_on_gpu if takes["num_gpus"] else self._do
        absolute = self.desk.order(order)
        reference = function.options(name=kind, **takes).remote(self.desk, absolute)
        self._running[reference] = order

    def collect(self, seconds: float) -> Sequence[Answer]:
        """Return the answers that have come, and one for each job whose process or node died."""
        self._look_at_times()
        running = list(self._running)
        if not running:
            time.sleep(seconds)
            return []
        ready, _ = self._ray.wait(running, timeout=seconds)
        if ready:  # others may be as well
            ready, _ = self._ray.wait(running, num_returns=len(running), timeout=0)
        return [self._answer(reference) for reference in ready]

    def close(self) -> None:
        """End the orders that run, leave the cluster, and end it if it was started here."""
        if not self._is_lost:
            for reference in self._running:
                with contextlib.suppress(Exception):
                    self._ray.cancel(reference, force=True)
        self._running.clear()
        self._ray.shutdown()
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)
        if self._probe is not None:
            self._probe.close()
        self.desk.clear()

    def _connect(self, address: str | None) -> None:
        how: dict[str, Any] = {"address": address or "local"}
        if address is not None:
            _require_listener(address)
        else:
            how |= {"include_dashboard": False, "_temp_dir": self._own}
            how |= {"object_store_memory": _OBJECT_STORE, "_node_ip_address": _LOOPBACK}
            os.environ.setdefault("RAY_AUTH_TOKEN", _PASSWORD)
        logging.getLogger("ray").setLevel(logging.ERROR)
        handler = signal.getsignal(signal.SIGTERM)  # Ray sets another
        try:
            self._ray.init(log_to_driver=False, logging_level=logging.ERROR, **how)
        except (OSError, RuntimeError, ValueError) as error:
            where = argument("address", address) if address else argument("engine", "ray")
            raise UserError(f"{where}: wanted a Ray cluster, found: {brief(error)}") from error
        finally:
            if handler is not None and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)

    def _look_at_times(self) -> None:
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._look()

    def _look(self) -> None:
        """Find the nodes that are there now.

        Raises
        ------
        UserError
            The head of the cluster is gone.
        """
        self._looked = time.monotonic()
        if not self._head_answers():
            return
        alive = [Node.read(node) for node in self._ray.nodes() if node["Alive"]]
        nodes = [node for node in alive if node.cores]
        if self._nodes and not nodes:
            note("all nodes of the cluster have gone; the sweep waits for one to come")
        self._nodes = nodes

    def _head_answers(self) -> bool:
        """Return whether the head of the cluster is there; raise UserError when it has gone.

        Ray itself would wait for a minute, and then end this process without a word for its user.
        """
        address = self._ray.get_runtime_context().gcs_address
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _HEAD_LISTEN_SECONDS).close()
        except OSError as error:
            now = time.monotonic()
            self._headless = self._headless or now
            if now - self._headless < _HEAD_SECONDS:
                return False
            self._is_lost = True
            raise UserError(
                f"{argument('engine', 'ray')}: wanted the head of the cluster at {address}, found "
                f"that it is gone ({error.strerror or error}); what is done stays: start a "
                "cluster, and repeat the command"
            ) from None
        self._headless = None
        return True

    def _function(self, function: Any, **options: Any) -> Any:
        """Return a function that Ray calls in a process of ours, once."""
        environment = {"env_vars": self._environment}
        return self._ray.remote(max_retries=0, runtime_env=environment, **options)(function)

    def _check_nodes(self) -> None:
        """Let every node read a file in the folder and write another.

        Raises
        ------
        UserError
            A node does not share the folder with its locks, or does not answer.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        errors = self._ray.exceptions
        reason = local_locks(Path(self.desk.root)) if len(self._nodes) > 1 else None
        if reason is not None:
            raise UserError(
                f"{argument('out', self.desk.root)}: wanted a folder whose locks hold on all nodes "
                f"of the cluster, found that {reason}"
            )
        self._probe = self.desk.open()
        node_of = {}  # by the reference of the answer
        for node in self._nodes:
            strategy = NodeAffinitySchedulingStrategy(node.id, soft=False)
            function = self._function(check_node, num_cpus=0, scheduling_strategy=strategy)
            node_of[function.remote(self.desk, node.id)] = node
        _, late = self._ray.wait(list(node_of), num_returns=len(node_of), timeout=_CHECK_SECONDS)
        for reference, node in node_of.items():
            try:
                wrong = f"it gave no answer in {_CHECK_SECONDS:.0f} seconds"
                if reference not in late:
                    wrong = self._ray.get(reference) or self.desk.wrong_of(node.id)
            except (errors.NodeDiedError, errors.TaskUnschedulableError):
                continue  # it is gone; if it comes back, its processes look themselves
            except errors.RayError as error:
                wrong = brief(error)
            if wrong:
                raise UserError(
                    f"{argument('out', self.desk.root)}: wanted a folder that all nodes of the "
                    f"cluster share, found that node {node.name} does not: {wrong}"
                )

    def _answer(self, reference: Any) -> Answer:
        order = self._running.pop(reference)
        try:
            answer: Answer = self._ray.get(reference)
            return answer
        except self._ray.exceptions.NodeDiedError as error:  # no fault of the job
            return Answer(order.job.key, STOPPED, message=brief(error))
        except self._ray.exceptions.RayError as error:
            return Answer(order.job.key, CRASHED, message=brief(error))


def load_ray(address: str | None) -> Any:
    """Import Ray, which is told to send no statistics of its use.

    Ray reads these variables when it is imported. Without an `address`, it uses loopback alone.

    Raises
    ------
    UserError
        Ray is not installed.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if address is None:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        return import_module("ray")
    except ImportError as error:
        from simcore._optional import install_command

        raise UserError(
            f"{argument('engine', 'ray')}: wanted the package ray, found: {error}; install it with "
            f"`{install_command('ray')}`"
        ) from None


def brief(error: Exception) -> str:
    """Return the first paragraph of an error of Ray in one line."""
    text = str(error).strip() or type(error).__name__
    return " ".join(text.split("\n\n")[0].split())


def _require_no_connection(ray: Any) -> None:
    if ray.is_initialized():
        raise UserError(
            f"{argument('engine', 'ray')}: wanted a process that has no connection to Ray, found "
            "one; call ray.shutdown() first"
        )


def _require_listener(address: str) -> None:
    """Raise UserError if nothing listens at an address, where Ray would wait for many minutes."""
    host, colon, port = address.rpartition(":")
    if not colon:  # a word such as ``auto``, for which Ray looks on this machine
        return
    try:
        socket.create_connection((host, int(port)), _LISTEN_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(
            f"{argument('address', address)}: wanted HOST:PORT of the head of a Ray cluster, "
            f"found: {error}"
        ) from None


def _temporary_folder() -> str:
    """Make a folder with so short a name that Ray's sockets fit into it (107 bytes in all)."""
    usual = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="simcore-ray-", dir=usual if len(usual) <= 20 else "/tmp")


def _environment(threads: int, own: bool) -> dict[str, str]:
    """Return the variables of the processes; processes on our `own` nodes import what we import."""
    variables = thread_variables(threads)
    if own:
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return variables
