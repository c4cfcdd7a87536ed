"""``simcore inject``: models that continue from the mapped states of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.commands.options import explain_interrupt, took
from simlab.steps.catalogue import INJECT, INJECT_ONE
from simlab.steps.record import Step

if TYPE_CHECKING:
    import pandas as pd

STEPS = (INJECT,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Write a results file for one pair of models, or a folder of them for several."""
    from simlab.results.reading import read_results
    from simlab.store import console

    models, out = values["models"], Path(values["out"])
    several = len(models) != 2 or bool(values["into"]) or values["pairs"] not in (None, 1)
    with explain_interrupt(out):
        if several:
            outcomes = step.call(**values)
        else:
            shared = {p.name: values[p.name] for p in INJECT_ONE.parameters if p.name in values}
            outcomes = [INJECT_ONE.call(a=models[0], b=models[1], **shared)]
    frame = read_results(list(dict.fromkeys(outcome.path for outcome in outcomes)))
    frame = frame[frame["grid"].isin({outcome.key for outcome in outcomes})]  # not all of a sweep
    for line in _describe_undefined(frame):
        console.note(line)
    count = f"{len(outcomes)} pairs" if several else "written"
    console.out.print(f"{out}: {count} ({took(*outcomes)})")


def _describe_undefined(frame: pd.DataFrame) -> list[str]:
    """Return a line for each reason why methods in a results table have no value."""
    from simlab.results.results import INJECTION

    methods: dict[tuple[int, str], dict[str, None]] = {}
    for row in frame[frame["experiment"] == INJECTION].itertuples():
        options = json.loads(row.options)
        if "undefined" in options:
            names = methods.setdefault((row.layer_x, options["undefined"]), {})
            names[options["method"]] = None  # one name for all metrics of a method
    return [
        f"{', '.join(names)}: no value at layer {layer}: {reason}"
        for (layer, reason), names in methods.items()
    ]
