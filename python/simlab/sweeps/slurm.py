"""The Slurm executor: jobs of a sweep are the tasks of job arrays, which submitit submits.

The orders of one kind that are ready become one array, whose tasks are processes of their own on
the nodes that Slurm chooses. What jobs read and write lies in the folder of the sweep, which all
nodes see. A task that begins when its driver has ended finds no file of this driver, and does
nothing.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from simlab.errors import UserError, argument, did_you_mean, first_line, one_of
from simlab.sweeps.engines import Remote, answer, fitting, load, parse_resources
from simlab.sweeps.job import Answer, Died
from simlab.sweeps.pool import thread_variables

MINUTES = 240  # of a task, where `time` is not chosen
# Of an array (Slurm refuses 1,002 unless it is told otherwise), and jobs at once by default.
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
