"""The Ray and the Slurm executor: processes on nodes that all see the folder of the sweep.

Ray finds a node with room for a job (`engines.fitting`), starts a process there, and says when a
process or a node has died. Paths travel and never arrays, and Ray's own retries are off, because
the driver decides what may be tried again.

To Slurm, submitit submits the orders of one kind that are ready as one job array, whose tasks are
processes of their own on the nodes that Slurm chooses. A task that begins when its driver has ended
finds no file of this driver, and does nothing.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Self

from simlab.errors import UserError, argument, did_you_mean, first_line, one_of
from simlab.store.console import note
from simlab.sweeps.engines import Remote, Resources, answer, fitting, load, parse_resources
from simlab.sweeps.job import Answer, Died
from simlab.sweeps.pool import thread_variables

_LOOK_SECONDS = 5.0  # between two looks at the nodes
_LISTEN_SECONDS = 20.0  # for the head to accept a connection
MINUTES = 240  # of a task, where `time` is not chosen
# Tasks of an array (Slurm refuses 1,002 unless it is told otherwise), and jobs at once by default.
_MOST = 1000
# Options of sbatch that are chosen here, or make no sense for a job of a sweep.
_OURS = (
    *("job_name", "array_parallelism", "ntasks_per_node", "nodes", "num_gpus"),
    *("stderr_to_stdout", "use_srun"),
    *("setup", "teardown", "srun_args", "additional_parameters"),  # no single values
)
_MEMORIES = ("mem", "mem_per_cpu", "mem_per_gpu")  # of which sbatch takes one
# What states of tasks mean, to which Slurm may add words.
_ENDS = {
    "TIMEOUT": "ran for its whole time; choose a longer `time`",
    "OUT_OF_MEM": (
        "took more memory than it asked for; choose a larger memory of this kind in `resources`"
    ),
}
# States of tasks that ended by no fault of the job.
_FROM_OUTSIDE = ("CANCELLED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED")


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


class SlurmExecutor(Remote):
    """Tasks of job arrays on a Slurm cluster; options as of `Sweep.run`."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        workers: int = 0,
        threads: int | None = None,
        resources: Sequence[str] = (),
        slurm: Sequence[str] = (),
    ) -> None:
        self.slots, self.threads = workers or _MOST, threads or 1
        self.chosen, self.options = parse_resources(resources), parse_slurm(slurm)
        self._submitit = load("slurm", "submitit")
        self._submitit.SlurmJob.watcher.clear()
        self._executors: dict[str, Any] = {}
        super().__init__(root)
        self.folder = self.root / "log" / f"slurm-{self.token}"

    def send(self, kind: str, calls: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        """Submit calls as arrays."""
        errors, jobs = self._submitit.core.utils, []
        try:
            executor = self._executors.get(kind) or self._make_executor(kind)
            for start in range(0, len(calls), _MOST):
                some = calls[start : start + _MOST]
                jobs += executor.map_array(answer_to_the_end, *zip(*some, strict=True))
        except (errors.FailedJobError, errors.FailedSubmissionError, OSError) as error:
            wanted, found = f"sbatch to take jobs of kind {kind}", _last_line(error)
        except RuntimeError as error:
            wanted, found = "a machine that submits to Slurm", first_line(error)
        else:
            return jobs
        raise UserError(f"{argument('engine', 'slurm')}: wanted {wanted}, found: {found}")

    def collect(self, calls: Sequence[Any]) -> Iterator[tuple[Any, Answer | Exception]]:
        """Yield the tasks that have ended."""
        errors = self._submitit.core.utils
        for job in calls:
            if job.done():
                try:
                    yield job, job.result()
                except (errors.UncompletedJobError, errors.FailedJobError) as error:
                    yield job, death_of(job, error)

    def end(self, calls: Sequence[Any]) -> None:
        """Cancel the tasks that run or wait, and delete their files, but not what they printed."""
        for job in calls:
            with contextlib.suppress(OSError):
                job.cancel(check=False)
        for pattern in ("*.pkl", "*.sh"):
            for file in self.folder.glob(pattern):
                file.unlink(missing_ok=True)

    def _make_executor(self, kind: str) -> Any:
        executor = self._submitit.SlurmExecutor(self.folder)
        takes = fitting(kind, self.chosen, self.threads)
        wanted: dict[str, Any] = {
            "job_name": f"simcore-{kind}",
            "time": MINUTES,
            "cpus_per_task": takes.cores,
            "mem": f"{math.ceil(takes.memory / 2**20)}M",
            "array_parallelism": self.slots,
            "stderr_to_stdout": True,
            "setup": [f"export {k}={v}" for k, v in thread_variables(self.threads).items()],
            **({"gpus_per_node": -int(-takes.gpus // 1)} if takes.gpus else {}),
            **self.options,
        }
        if not {*_MEMORIES}.isdisjoint(self.options):
            wanted = {k: v for k, v in wanted.items() if k in self.options or k not in _MEMORIES}
        # `update_parameters` takes other names and units for three of them.
        executor._internal_update_parameters(**wanted)
        self._executors[kind] = executor
        return executor


def death_of(job: Any, error: Exception) -> Exception:
    """Return why a task ended without an answer."""
    state = job.watcher.get_state(job.job_id, mode="force")
    known = (why for word, why in _ENDS.items() if state.startswith(word))
    why = next(known, f"ended as {state}: {_last_line(error)}")
    return Died(f"task {job.job_id} {why}", outside=state.startswith(_FROM_OUTSIDE))


def answer_to_the_end(*call: Any) -> Answer | UserError:
    """Do a call in a task, whatever Slurm announces."""
    # Before a task is ended, Slurm sends it a signal, at which submitit raises an error in the
    # middle of the job: the sweep would take it for an error of the job, and not try again.
    environment = import_module("submitit.slurm.slurm").SlurmJobEnvironment
    signal.signal(signal.Signals[f"SIG{environment.USR_SIG}"], signal.SIG_IGN)
    return answer(*call)


def parse_slurm(texts: Iterable[str]) -> Mapping[str, str | int]:
    """Read options of sbatch such as ``partition=gpu`` or ``time=600`` (minutes)."""
    load("slurm", "submitit")
    known = import_module("submitit.slurm.slurm")._get_default_parameters().items()
    names = [n for n, value in known if n not in _OURS and isinstance(value, int | str | None)]
    options: dict[str, str | int] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        name = name.replace("-", "_")
        if name not in names or not equals or not value:
            meant = did_you_mean(name, names)
            raise UserError(
                f"{argument('slurm', text)}{meant}: wanted NAME=VALUE with {one_of(names, meant)}"
            )
        if name == "time" and not (value.isdigit() and int(value)):
            raise UserError(f"{argument('slurm', text)}: wanted a number of minutes")
        options[name] = int(value) if value.isdigit() else value
    return options


def _last_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1]
