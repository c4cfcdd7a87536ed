"""A pool of processes of this machine, which die one at a time.

Each slot is a thread with a process of its own, which is started once and used for many calls:
``python -m simlab.sweeps.pool DESCRIPTOR``, so that nothing of the driver is in it and torch reads
its number of threads when it is loaded. Calls and results go through a pipe. A process ends when
its pipe closes: a driver that is killed leaves none behind.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import connection
from pathlib import Path
from typing import Any

from simlab.sweeps.job import Died

_END_SECONDS = 10.0
# Signals by which queues, systems and people end a process. No job sends them to itself, and the
# kernel kills a process that takes too much memory by SIGKILL.
_FROM_OUTSIDE = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Pool(ThreadPoolExecutor):
    """Processes of this machine, which print to files in `log`; options as of `Sweep.run`."""

    def __init__(self, workers: int, log: Path, threads: int | None = None) -> None:
        self.gpus = visible_gpus()
        self.slots = workers or max(1, len(self.gpus))
        super().__init__(self.slots)
        self.log, self.threads = log, threads or max(1, cores() // self.slots)
        self._free = queue.LifoQueue[int]()  # the slot that was used last has the most in memory
        for number in reversed(range(self.slots)):
            self._free.put(number)
        self._is_closed = False
        self._processes: dict[int, tuple[subprocess.Popen[bytes], connection.Connection]] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function in a process; its end is a `Died`."""
        return super().submit(self._call, (fn, args, kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """End all processes: those at work by a signal, the others by closing their pipes."""
        self._is_closed = True
        super().shutdown(wait=False, cancel_futures=True)
        idle = set(self._free.queue)
        for number, (process, pipe) in list(self._processes.items()):
            (pipe.close if number in idle else process.kill)()
        for process, _ in list(self._processes.values()):
            _ended(process)
        super().shutdown(wait=wait)

    def _call(self, call: Any) -> Any:
        number = self._free.get()
        try:
            if self._is_closed:
                raise Died("the pool was closed", outside=True)
            process, pipe = self._processes.get(number) or self._start(number)
            with contextlib.suppress(EOFError, OSError):
                pipe.send(call)
                return pipe.recv()
            pipe.close()
            del self._processes[number]
            code = _ended(process)
            how = f"code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
            raise Died(f"the worker ended with {how}", outside=-code in _FROM_OUTSIDE)
        finally:
            self._free.put(number)

    def _start(self, number: int) -> tuple[subprocess.Popen[bytes], connection.Connection]:
        ours, theirs = connection.Pipe()
        self.log.mkdir(parents=True, exist_ok=True)
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        variables |= thread_variables(self.threads)
        if self.gpus:
            variables["CUDA_VISIBLE_DEVICES"] = self.gpus[number % len(self.gpus)]
        with (self.log / f"worker-{number}.txt").open("ab") as output, theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "simlab.sweeps.pool", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the driver, which ends its workers
            )
        self._processes[number] = process, ours
        return process, ours


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process that is about to end; one that hangs is killed."""
    try:
        return process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment variables of a process of so many threads."""
    fixed = {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}
    return fixed | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))


def cores() -> int:
    """Return the number of cores that this process may use."""
    has = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
    return len(has(0))


def visible_gpus() -> list[str]:
    """Return the names of the GPUs that torch, which would be loaded for it, would see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip() not in ("", "-1")]
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    count = sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
    return [str(number) for number in range(count)]


def keep_imports() -> None:
    """Have the collector of garbage pass over imported objects, which cost as much as a job."""
    global _imported
    if len(sys.modules) > _imported:
        _imported = len(sys.modules)
        gc.collect()
        gc.freeze()


_imported = 0


def main(descriptor: int) -> None:
    """Do calls until the pipe closes, and then end at once: the driver is gone."""
    pipe = connection.Connection(descriptor)
    calls: queue.Queue[Any] = queue.Queue()

    def listen() -> None:
        while True:
            try:
                calls.put(pipe.recv_bytes())
            except (EOFError, OSError):
                os._exit(0)

    threading.Thread(target=listen, daemon=True, name="calls").start()
    while True:
        function, arguments, named = pickle.loads(calls.get())
        result = function(*arguments, **named)
        keep_imports()
        try:
            pipe.send(result)
        except OSError:
            os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
