"""A Ray cluster on this machine: a head, and nodes that pass for machines of their own.

Such a node runs in namespaces of its own: it has another host name, other numbers of processes, and
other mounts. When the first process of its namespace is killed, the kernel kills all others at
once, as if the machine had lost its power.

``python -m support.lab.rayclusters ADDRESS`` starts a node in this process and waits.
``python -m support.lab.rayclusters`` says whether tests use Ray here.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

NO_RAY = "the package ray is not installed"
FAR = "faraway"
LOOPBACK = "127.0.0.1"
# The head misses a node after two seconds; Ray's own choice is half a minute.
_HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
}
# Logical: Ray sets room aside, and nobody uses so much.
_MEMORY = 100 * 10**9


def find_ray() -> bool:
    """Return whether Ray is installed."""
    return importlib.util.find_spec("ray") is not None


class RayCluster:
    """A head with cores of its own, and far nodes that tests start and kill."""

    def __init__(self, cores: int = 1) -> None:
        from ray.cluster_utils import Cluster

        self.cluster: Any = Cluster(
            initialize_head=True,
            shutdown_at_exit=False,
            head_node_args={
                "num_cpus": cores,
                "memory": _MEMORY,
                "node_ip_address": LOOPBACK,
                "include_dashboard": False,
                "_system_config": _HEALTH,
            },
        )
        self.address: str = self.cluster.address

    @contextmanager
    def far_node(self, hidden: Path | None = None) -> Iterator[psutil.Process]:
        """Start a node of one core under the name `FAR`; yield the first process of its machine.

        Parameters
        ----------
        hidden
            A folder that the node does not see.
        """
        steps = [f"hostname {FAR}", f'exec {sys.executable} -m {__spec__.name} "$0"']
        if hidden is not None:
            steps.insert(1, f"mount -t tmpfs tmpfs {hidden}")
        command = [*namespaces(), "sh", "-c", " && ".join(steps), self.address]
        outer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            assert outer.stdout is not None
            assert outer.stdout.readline() == b"up\n"
            (inner,) = psutil.Process(outer.pid).children()
            yield inner
        finally:
            outer.kill()
            outer.wait()

    def kill_head(self) -> None:
        """Kill the process that knows all nodes."""
        (head,) = self.cluster.head_node.all_processes["gcs_server"]
        head.process.kill()
        head.process.wait()

    def stop(self) -> None:
        """End all nodes."""
        self.cluster.shutdown()


@contextmanager
def ray_cluster() -> Iterator[RayCluster]:
    """Start a cluster; in the end, check that no process of it is left."""
    temporary = tempfile.mkdtemp(prefix="simcore-test-ray-")
    variables = {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback alone
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",  # else Ray writes a password into the user's folder
        "RAY_TMPDIR": temporary,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        cluster = RayCluster()
        try:
            yield cluster
        finally:
            cluster.stop()
            left = gone(processes_of(temporary))
            shutil.rmtree(temporary, ignore_errors=True)
            assert left == []


def can_pretend() -> bool:
    """Return whether the system lets us start nodes that pass for other machines."""
    command = [*namespaces(), "sh", "-c", f"hostname {FAR} && mount -t tmpfs tmpfs /mnt"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def processes_of(word: str) -> list[psutil.Process]:
    """Return all processes whose command has a word."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(word in part for part in process.info["cmdline"] or ()):
            found.append(process)
    return found


def gone(processes: Sequence[psutil.Process], seconds: float = 10.0) -> list[psutil.Process]:
    """Wait until processes have ended; return those that have not."""
    return psutil.wait_procs(processes, timeout=seconds)[1]


def namespaces() -> list[str]:
    """Return the beginning of a command that runs as on a machine of its own."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    own = ["--uts", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child"]
    return ["unshare", *user, *own]


def _be_a_node(address: str) -> None:
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    Node(
        RayParams(
            gcs_address=address,
            redis_address=address,
            node_ip_address=LOOPBACK,
            num_cpus=1,
            num_gpus=0,
            memory=_MEMORY,
            object_store_memory=100 << 20,
            node_manager_port=0,
            min_worker_port=0,
            max_worker_port=0,
            include_log_monitor=False,
            dashboard_agent_listen_port=None,
        ),
        head=False,
        shutdown_at_exit=False,
        spawn_reaper=False,
    )
    print("up", flush=True)
    signal.pause()


if __name__ == "__main__":
    if sys.argv[1:]:
        _be_a_node(sys.argv[1])
    print("sweeps on Ray:", "tested on two nodes" if find_ray() else f"SKIPPED ({NO_RAY})")
