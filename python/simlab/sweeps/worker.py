"""A worker of the local engine: ``python -m simlab.sweeps.worker DESCRIPTOR``.

The worker reads orders from a pipe, does them one after another, and writes the answers back. When
the pipe closes, it ends at once: its driver is gone.
"""

from __future__ import annotations

import gc
import os
import queue
import sys
import threading
from multiprocessing import connection

from simlab.sweeps.execute import Order, execute


def main(descriptor: int) -> None:
    """Do orders until the pipe closes."""
    pipe = connection.Connection(descriptor)
    orders: queue.Queue[Order] = queue.Queue()

    def listen() -> None:
        while True:
            try:
                orders.put(pipe.recv())
            except (EOFError, OSError):
                os._exit(0)

    threading.Thread(target=listen, daemon=True, name="orders").start()
    while True:
        answer = execute(orders.get())
        keep_imports()
        try:
            pipe.send(answer)
        except OSError:  # the driver is gone
            os._exit(0)


_imported = 0


def keep_imports() -> None:
    """Have the collector of garbage leave the objects of imported libraries alone.

    Going through them again and again would cost as much as a small job.
    """
    global _imported
    if len(sys.modules) > _imported:
        _imported = len(sys.modules)
        gc.collect()
        gc.freeze()


if __name__ == "__main__":
    main(int(sys.argv[1]))
