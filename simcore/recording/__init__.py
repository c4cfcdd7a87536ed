"""The layers of any model, recorded while it runs, and two models compared by them.

selection.py   which modules: names, globs, predicates; outputs or inputs
wrappers.py    what stands around a model: compiled, data-parallel and generating code
hooks.py       the hooks; where a forward pass begins and ends, and its rows
masks.py       which positions are tokens, and which are padding
outputs.py     the tensor of a module's output
axes.py        which of its axes hold the examples and the channels
pools.py       the rows that a tensor becomes
reading.py     one output, from the hook to its rows, and a sample of them
storage.py     rows in memory or in a file
tape.py        `record` and `Tape`
batches.py     a batch of a loader, as arguments of a model; a pass in the middle of a training
named_grid.py  `compare_layers`
comparison.py  `compare`
history.py     the values of a track, and their file
track_arguments.py  its arguments, checked; loggers of other tools
track.py       `Track`
lightning.py   a `Track` as a callback of Lightning

The folder is not called `record`: `simcore.record` is the function.
"""

from simcore._result import Comparison
from simcore.recording.comparison import compare
from simcore.recording.lightning import lightning_callback
from simcore.recording.named_grid import compare_layers
from simcore.recording.tape import Tape, record
from simcore.recording.track import Track

__all__ = [
    "Comparison",
    "Tape",
    "Track",
    "compare",
    "compare_layers",
    "lightning_callback",
    "record",
]
