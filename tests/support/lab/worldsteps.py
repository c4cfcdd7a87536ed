"""Drivers of `protocol`: their engine, which stops where they wait, and their steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from simlab.store.results import ResultRow
from simlab.sweeps.execute import BUSY, Answer
from support.lab.actors import this_actor
from support.lab.inline import InlineEngine

if TYPE_CHECKING:
    from support.lab.protocol import World

world: World | None = None  # whose drivers run


class InDriver(InlineEngine):
    """Does orders in the process of the driver, and lets it stop where it waits."""

    def collect(self, seconds: float):
        actor = this_actor()
        assert actor is not None
        assert world is not None
        world.processes[actor].waited += 1
        count_lost(world, self.answers)
        actor.pause()
        return super().collect(seconds)


def count_lost(world: World, answers: Iterable[Answer]) -> None:
    """Count the answers of processes that lost their claims at work."""
    # An order that begins while another process has the claim is busy without a message.
    lost = [one for one in answers if one.state == BUSY and one.message]
    world.events["lost at work"] += len(lost)


def _at_work(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def work(order: Any) -> Any:
        actor = this_actor()
        assert actor is not None
        assert world is not None
        process = world.processes[actor]
        process.at_work = order.params["name"]
        try:
            actor.pause()
            return step(order)
        finally:
            process.at_work = None

    return work


@_at_work
def train(work: Any) -> None:
    """Make a folder in two parts, the first of which a later owner continues."""
    if work.out.exists():  # the last owner ended before it published
        return
    partial = work.out.with_name("partial")
    partial.mkdir(exist_ok=True)
    for part in ("numbers", "others"):
        (partial / part).write_bytes(b"numbers")
    partial.rename(work.out)


@_at_work
def grid(work: Any) -> list[ResultRow]:
    """Return a row."""
    value = float((work.inputs[0] / "numbers").read_bytes() == b"numbers")
    return [ResultRow(experiment="e", measure="m", label_x="x", value=value, n=1, task="t")]


STEPS = {"finetune": train, "grid": grid}
RESUMABLE = ("finetune",)
