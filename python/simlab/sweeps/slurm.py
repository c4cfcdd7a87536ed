"""The Slurm engine: jobs of a sweep are the tasks of job arrays, which submitit submits.

The orders of one kind that are ready become one array, whose tasks are processes of their own on
the nodes that Slurm chooses. All else is as on one machine: `node_worker` does an `Order`, and what
jobs read and write lies in the folder of the sweep, which all nodes see. A task whose driver has
ended finds that nobody holds the driver's lock, and does nothing.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from simlab.errors import UserError, argument, did_you_mean, first_line, one_of
from simlab.sweeps.execute import CRASHED, STOPPED, Answer, Order
from simlab.sweeps.local import thread_variables
from simlab.sweeps.locking import local_locks
from simlab.sweeps.node_worker import Desk, do
from simlab.sweeps.resources import parse_resources, wishes

MINUTES = 240  # of a task, where `time` is not chosen
_MOST_TASKS = 1000  # of an array; Slurm refuses more than 1,001 unless it is told otherwise
_MOST_JOBS = 1000  # at once, where nobody chooses `workers`
_LOOK_SECONDS = 0.5  # between two looks at the files of tasks
# Options of sbatch that are chosen here, or make no sense for a job of a sweep.
_OURS = (
    *("job_name", "array_parallelism", "ntasks_per_node", "nodes", "num_gpus"),
    *("stderr_to_stdout", "use_srun"),
    *("setup", "teardown", "srun_args", "additional_parameters"),  # no single values
)
# Of these sbatch takes one.
_MEMORIES = ("mem", "mem_per_cpu", "mem_per_gpu")
# States of tasks that ended by no fault of the job; Slurm may add words to them.
_FROM_OUTSIDE = ("CANCELLED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED")


class SlurmEngine:
    """Tasks of job arrays on a Slurm cluster.

    Parameters
    ----------
    root
        As for `RayEngine`.
    workers
        Most jobs at once, submitted and running; 0 is 1,000.
    threads
        Threads of each job, and the cores that it takes; None is 1.
    resources
        Resources of jobs of a kind, as `parse_resources` reads them; a job gets a GPU only here.
    slurm
        Options of sbatch, as `parse_slurm` reads them.

    Raises
    ------
    UserError
        submitit is not installed, this machine has no Slurm, or locks of the folder hold on this
        machine alone.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        workers: int = 0,
        threads: int | None = None,
        resources: Sequence[str] = (),
        slurm: Sequence[str] = (),
    ) -> None:
        self.workers, self.threads = workers or _MOST_JOBS, threads or 1
        self.chosen, self.options = parse_resources(resources), parse_slurm(slurm)
        self._submitit = load_submitit()
        self._submitit.SlurmJob.watcher.clear()
        self.desk = Desk(os.path.abspath(root), uuid.uuid4().hex[:12], os.getcwd())
        reason = local_locks(Path(self.desk.root))
        if reason is not None:
            raise UserError(
                f"{argument('out', self.desk.root)}: wanted a folder whose locks hold on all nodes "
                f"of the cluster, found that {reason}"
            )
        self.folder = Path(self.desk.root, "log", f"slurm-{self.desk.token}")
        self._executors: dict[str, Any] = {}
        self._waiting: dict[str, list[Order]] = {}  # by kind, until they are submitted together
        self._running: list[tuple[Any, Order]] = []
        self._probe = self.desk.open()

    def free(self) -> int:
        """Return how many more orders are submitted at once."""
        waiting = sum(map(len, self._waiting.values()))
        return max(0, self.workers - waiting - len(self._running))

    def submit(self, order: Order) -> None:
        """Keep an order until `collect` submits all orders of its kind."""
        self._waiting.setdefault(order.job.kind, []).append(order)

    def collect(self, seconds: float) -> Sequence[Answer]:
        """Submit the orders that wait, and return the answers that have come."""
        for kind, orders in self._waiting.items():
            for start in range(0, len(orders), _MOST_TASKS):
                self._submit(kind, orders[start : start + _MOST_TASKS])
        self._waiting.clear()
        until = time.monotonic() + seconds
        while True:
            ended = [pair for pair in self._running if pair[0].done()]
            if ended or time.monotonic() >= until:
                break
            time.sleep(min(_LOOK_SECONDS, seconds))
        self._running = [pair for pair in self._running if pair not in ended]
        return [self._answer(job, order) for job, order in ended]

    def close(self) -> None:
        """Cancel the tasks that run or wait, and delete their files, but not what they printed."""
        self._waiting.clear()
        for job, _ in self._running:
            with contextlib.suppress(OSError):
                job.cancel(check=False)
        self._running.clear()
        self._probe.close()
        self.desk.clear()
        for pattern in ("*.pkl", "*.sh"):
            for file in self.folder.glob(pattern):
                file.unlink(missing_ok=True)

    def _submit(self, kind: str, orders: Sequence[Order]) -> None:
        executor = self._executors.get(kind) or self._make_executor(kind)
        absolute = [self.desk.order(order) for order in orders]
        errors = self._submitit.core.utils
        try:
            jobs = executor.map_array(do_to_the_end, [self.desk] * len(absolute), absolute)
        except (errors.FailedJobError, errors.FailedSubmissionError, OSError) as error:
            raise UserError(
                f"{argument('engine', 'slurm')}: wanted sbatch to take jobs of kind {kind}, found: "
                f"{_last_line(error)}"
            ) from error
        self._running += zip(jobs, orders, strict=True)

    def _make_executor(self, kind: str) -> Any:
        try:
            executor = self._submitit.SlurmExecutor(self.folder)
        except RuntimeError as error:
            raise UserError(
                f"{argument('engine', 'slurm')}: wanted a machine that submits to Slurm, found: "
                f"{first_line(error)}"
            ) from error
        cores, gpus, memory = wishes(kind, self.chosen, self.threads)
        wanted: dict[str, Any] = {
            "job_name": f"simcore-{kind}",
            "time": MINUTES,
            "cpus_per_task": cores,
            "mem": f"{math.ceil(memory / 2**20)}M",
            "array_parallelism": self.workers,
            "stderr_to_stdout": True,
            "setup": [f"export {k}={v}" for k, v in thread_variables(self.threads).items()],
            **({"gpus_per_node": math.ceil(gpus)} if gpus else {}),
            **self.options,
        }
        if not {*_MEMORIES}.isdisjoint(self.options):
            wanted = {k: v for k, v in wanted.items() if k in self.options or k not in _MEMORIES}
        # `update_parameters` takes other names and units for three of them.
        executor._internal_update_parameters(**wanted)
        self._executors[kind] = executor
        return executor

    def _answer(self, job: Any, order: Order) -> Answer:
        errors = self._submitit.core.utils
        try:
            answer: Answer = job.result()
            return answer
        except (errors.UncompletedJobError, errors.FailedJobError) as error:
            state = job.watcher.get_state(job.job_id, mode="force")
            told = f"task {job.job_id} ended as {state}: {_last_line(error)}"
            if state.startswith("TIMEOUT"):
                told = f"task {job.job_id} ran for its whole time; choose a longer `time`"
            elif state.startswith("OUT_OF_MEM"):
                told = (
                    f"task {job.job_id} took more memory than it asked for; choose a larger memory "
                    "of this kind in `resources`"
                )
            ended = STOPPED if state.startswith(_FROM_OUTSIDE) else CRASHED
            return Answer(order.job.key, ended, message=told)


def do_to_the_end(desk: Desk, order: Order) -> Answer:
    """Do an order in a task, whatever Slurm announces.

    Before a task is ended, Slurm sends it a signal, at which submitit raises an error in the middle
    of the job: the sweep would take it for an error of the job, and not try again.
    """
    environment = import_module("submitit.slurm.slurm").SlurmJobEnvironment
    signal.signal(signal.Signals[f"SIG{environment.USR_SIG}"], signal.SIG_IGN)
    return do(desk, order)


def load_submitit() -> Any:
    """Import submitit.

    Raises
    ------
    UserError
        It is not installed.
    """
    try:
        return import_module("submitit")
    except ImportError as error:
        from simcore._optional import install_command

        raise UserError(
            f"{argument('engine', 'slurm')}: wanted the package submitit, found: {error}; "
            f"install it with `{install_command('slurm')}`"
        ) from None


def parse_slurm(texts: Iterable[str]) -> Mapping[str, str | int]:
    """Read options of sbatch such as ``partition=gpu`` or ``time=600`` (minutes).

    Raises
    ------
    UserError
        submitit knows no such option, or the time is no number of minutes.
    """
    load_submitit()
    known = import_module("submitit.slurm.slurm")._get_default_parameters()
    names = [name for name in known if isinstance(known[name], int | str | None)]
    names = [name for name in names if name not in _OURS]
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
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
