"""The files of `simcore.Track` as rows of the results table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError
from simlab.store.files import hash_json

if TYPE_CHECKING:
    import pandas as pd

    from simcore.recording.history import History

TRAINING = "training"  # the value of `experiment` in rows by step of training
_FIRST = 1  # layer 0 is the embedding output
FACTS = {"task": str, "label": str, "seed": int, "base": str}


def read_track(path: Path) -> pd.DataFrame:
    """Return the values of the file that a `simcore.Track` wrote, by columns of the results table.

    The label of side x is the fact ``label`` of the track, or else the name of the file; the label
    of side y is the name of the reference. Layers are numbered in their order, from 1 on, as
    modules of representation folders are.
    """
    import pandas as pd

    from simcore.recording.history import read_history

    history = read_history(path)
    about = history.about["about"]
    for name, wanted in FACTS.items():
        if (name == "task" or name in about) and not isinstance(about.get(name), wanted):
            raise UserError(
                f"results {path}: wanted {name!r} among the facts of the track, about={{...}}, as "
                f"{wanted.__name__}, found {about}"
            )
    return pd.DataFrame(list(_rows(history, about, str(about.get("label", path.stem)))))


def _rows(history: History, about: dict[str, Any], label: str) -> Iterator[dict[str, Any]]:
    head = history.about
    options = dict(head["options"])
    kernel, bandwidth = options.pop("kernel", None), options.pop("bandwidth", None)
    same = {
        "experiment": TRAINING,
        "grid": hash_json([head, history.steps, str(history.values)]),
        "measure": head["measure"],
        "kind": f"modules-{head['pool']}" if head["pool"] else "modules",  # as `extract` says
        "estimator": options.pop("estimator", None),
        "kernel": kernel,
        "bandwidth": bandwidth if kernel == "rbf" else None,
        "label_x": label,
        **{f"{name}_x": about.get(name) for name in ("seed", "base")},
        "n": head["n"],
        "task": about["task"],
    }
    options |= {name: value for name, value in about.items() if name not in FACTS}
    same["options"] = json.dumps(options, sort_keys=True) if options else None
    places = {name: place for place, name in enumerate(head["layers"], _FIRST)}
    others = {
        reference: {name: place for place, name in enumerate(layers, _FIRST)}
        for reference, layers in head["references"].items()
    }
    for row in history.rows():
        reference = row["reference"]
        yield {
            **same,
            "comparison": reference,
            "label_y": reference,
            "step_x": row["step"],
            "layer_x": places[row["layer"]],
            "layer_y": others[reference][row["other"]],
            "value": row["value"],
        }
