"""Resources of a cluster for each kind of job: cores, GPUs and memory.

The numbers are room that is set aside on a node, and no limits on what a job does. A GPU is asked
for only where the cluster has one, and no more memory than the largest node has, unless it is
chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from simlab.errors import UserError, argument
from simlab.sweeps import plan as kinds
from simlab.sweeps.sections import Size

GB = 10**9
_SIZE = TypeAdapter(Size)


@dataclass(frozen=True)
class Resources:
    """The resources for jobs of one kind.

    Attributes
    ----------
    gpus
        Number of GPUs; a fraction lets several jobs share one.
    cores
        Number of cores; None is as many as the job has threads.
    memory
        Bytes.
    """

    gpus: float = 0
    cores: int | None = None
    memory: int = 4 * GB


_WITH_MODEL = Resources(gpus=1, memory=6 * GB)
_WITH_TABLES = Resources(cores=1, memory=GB)
RESOURCES: Mapping[str, Resources] = {
    **dict.fromkeys(
        (kinds.BASES, kinds.GRID, kinds.ALIGN, kinds.COMPLEXITY, kinds.LOCALIZE), Resources()
    ),
    **dict.fromkeys((kinds.SCORES, kinds.BLOCKS, kinds.FREEZE, kinds.BASELINES), _WITH_TABLES),
}
NAMES = tuple(Resources.__dataclass_fields__)


@dataclass(frozen=True)
class Node:
    """The resources of a node of a cluster; `id` is Ray's name of it, `name` is for people."""

    id: str
    name: str
    cores: int
    gpus: float
    memory: int

    @classmethod
    def read(cls, node: Mapping[str, Any]) -> Node:
        """Return a node from what ``ray.nodes()`` says of it."""
        has = node["Resources"]
        name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
        cores, memory = int(has.get("CPU", 0)), int(has.get("memory", 0))
        return cls(node["NodeID"], name, cores, has.get("GPU", 0), memory)


def share_of(nodes: Sequence[Node], workers: int) -> int:
    """Return the threads of each job, if nobody chooses them.

    With `workers`, all cores are shared equally. Without, the cores of a node are shared by its
    GPUs, or all belong to one job; the node where this is least counts for all.
    """
    least = min((node.cores // max(1, int(node.gpus)) for node in nodes), default=1)
    if workers:
        smallest = min((node.cores for node in nodes), default=1)
        least = min(smallest, sum(node.cores for node in nodes) // workers)
    return max(1, least)


def fitting(
    kind: str, chosen: Mapping[str, Mapping[str, Any]], nodes: Sequence[Node], threads: int
) -> dict[str, float]:
    """Return the resources of a kind of job on these nodes, as Ray's options.

    Parameters
    ----------
    chosen
        Values by kind (`parse_resources`) that replace values of `RESOURCES`.

    Raises
    ------
    UserError
        No node has so much.
    """
    usual, own = RESOURCES.get(kind, _WITH_MODEL), chosen.get(kind, {})
    cores = own.get("cores", usual.cores) or threads
    gpus = own.get("gpus", usual.gpus if any(node.gpus for node in nodes) else 0)
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
    return {"num_cpus": cores, "num_gpus": gpus, "memory": memory}


def wishes(
    kind: str, chosen: Mapping[str, Mapping[str, Any]], threads: int
) -> tuple[int, float, int]:
    """Return cores, GPUs and bytes of memory of a kind of job on nodes that are not known.

    There are no GPUs but those in `chosen` (`parse_resources`).
    """
    usual, own = RESOURCES.get(kind, _WITH_MODEL), chosen.get(kind, {})
    cores = own.get("cores", usual.cores) or threads
    return cores, own.get("gpus", 0), own.get("memory", usual.memory)


def parse_resources(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read texts such as ``finetune:gpus=0.5,memory=16GB`` into values by kind.

    Raises
    ------
    UserError
        A kind or a name is unknown, or a value is wrong. The message names the wanted and the
        found.
    """
    values: dict[str, dict[str, Any]] = {}
    for text in texts:
        kind, _, rest = text.partition(":")
        if kind not in kinds.KINDS:
            known = ", ".join(kinds.KINDS)
            raise UserError(
                f"{argument('resources', text)}: wanted one of {known} before ':', found {kind!r}"
            )
        for pair in rest.split(","):
            name, _, value = (part.strip() for part in pair.partition("="))
            if name not in NAMES:
                wanted = " or ".join(f"{known}=" for known in NAMES)
                raise UserError(f"{argument('resources', text)}: wanted {wanted}, found {pair!r}")
            values.setdefault(kind, {})[name] = _value(text, name, value)
    return values


_WANTED = {
    "gpus": "a number of GPUs, or a fraction of one",
    "cores": "a number of cores from 1",
    "memory": "a size such as 16GB",
}


def _value(text: str, name: str, value: str) -> float:
    try:
        if name == "memory":
            return _SIZE.validate_python(value)
        number = float(value)
        if number.is_integer() and number >= (name == "cores"):
            return int(number)
        if name == "gpus" and 0 <= number < 1:
            return number
    except (ValueError, ValidationError):
        pass
    raise UserError(f"{argument('resources', text)}: wanted {_WANTED[name]}, found {value!r}")
