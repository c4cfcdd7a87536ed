"""The local engine: worker processes of this machine, started once and used for many jobs.

Each worker is a Python process of its own, started by its own command, so that nothing of the
driver is in it and torch reads its number of threads when it is loaded. Orders and answers go
through a pipe. A worker ends when its pipe closes: a driver that is killed leaves no workers
behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path

from simlab.sweeps.execute import CRASHED, STOPPED, Answer, Order

_END_SECONDS = 10.0
# Signals by which queues, systems and people end a process. No job sends them to itself, and the
# kernel kills a process that takes too much memory by SIGKILL.
_FROM_OUTSIDE = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@dataclass
class _Worker:
    """A worker process, the driver's end of its pipe, and the order that it works on."""

    process: subprocess.Popen[bytes]
    pipe: connection.Connection
    order: Order | None = None


class LocalEngine:
    """Worker processes of this machine.

    Parameters
    ----------
    workers
        Number of processes; 0 is one for each GPU, or else one.
    log
        Folder for what the workers print.
    threads
        Threads of each worker; None is an equal share of the cores.
    """

    def __init__(self, workers: int, log: Path, threads: int | None = None) -> None:
        self.gpus = visible_gpus()
        self.workers = workers or max(1, len(self.gpus))
        self.log = log
        self.threads = threads or max(1, _cores() // self.workers)
        self._slots: list[_Worker | None] = [None] * self.workers

    def free(self) -> int:
        """Return the number of workers without an order."""
        return sum(worker is None or worker.order is None for worker in self._slots)

    def submit(self, order: Order) -> None:
        """Give an order to a worker that is free; start one if none is."""
        idle = [n for n, worker in enumerate(self._slots) if worker and worker.order is None]
        number = idle[0] if idle else self._slots.index(None)
        worker = self._slots[number] or self._start(number)
        worker.order = order
        # A worker that has died is found by `collect`.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            worker.pipe.send(order)

    def collect(self, seconds: float) -> Sequence[Answer]:
        """Return the answers of workers, and of those that died."""
        busy = [worker for worker in self._slots if worker and worker.order]
        ready = connection.wait([worker.pipe for worker in busy], seconds)
        return [self._answer(worker) for worker in busy if worker.pipe in ready]

    def close(self) -> None:
        """End all workers: idle ones by closing their pipes, the others by a signal."""
        for worker in filter(None, self._slots):
            worker.pipe.close()
            if worker.order is not None:
                worker.process.kill()
        for worker in filter(None, self._slots):
            try:
                worker.process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
        self._slots = [None] * self.workers

    def _start(self, number: int) -> _Worker:
        ours, theirs = connection.Pipe()
        self.log.mkdir(parents=True, exist_ok=True)
        with (self.log / f"worker-{number}.txt").open("ab") as output, theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "simlab.sweeps.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env=self._environment(number),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the driver, which ends its workers
            )
        self._slots[number] = worker = _Worker(process, ours)
        return worker

    def _environment(self, number: int) -> dict[str, str]:
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        variables |= thread_variables(self.threads)
        if self.gpus:
            variables["CUDA_VISIBLE_DEVICES"] = self.gpus[number % len(self.gpus)]
        return variables

    def _answer(self, worker: _Worker) -> Answer:
        order, worker.order = worker.order, None
        assert order is not None
        with contextlib.suppress(EOFError, ConnectionResetError, OSError):
            answer: Answer = worker.pipe.recv()
            return answer
        worker.pipe.close()
        code = worker.process.wait()
        self._slots[self._slots.index(worker)] = None
        how = f"code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        state = STOPPED if -code in _FROM_OUTSIDE else CRASHED
        return Answer(order.job.key, state, message=f"the worker ended with {how}")


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment variables of a process of so many threads."""
    fixed = {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}
    return fixed | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))


def visible_gpus() -> list[str]:
    """Return the names of the GPUs that torch would see, as CUDA_VISIBLE_DEVICES has them.

    torch is not asked: it would be loaded in the driver.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip() not in ("", "-1")]
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    lines = [line for line in listing.stdout.splitlines() if line.startswith("GPU ")]
    return [str(number) for number in range(len(lines))]


def _cores() -> int:
    with contextlib.suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
