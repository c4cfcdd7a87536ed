"""`lightning_callback`: a `Track` that a Trainer of Lightning takes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from simcore._optional import import_optional
from simcore.recording.selection import Chooser
from simcore.recording.track import Track

# Names of one library; objects of the one are none of the other.
PACKAGES = ("lightning.pytorch", "pytorch_lightning")


class _Tracking:
    """The hooks of the callback; its other base classes are those of Lightning."""

    def __init__(self, modules: Chooser, batch: Any, options: Mapping[str, Any]) -> None:
        self.modules, self.batch, self.options = modules, batch, options
        self.track: Track | None = None
        self._state: Mapping[str, Any] = {}

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.is_global_zero:
            return
        own = {} if self.options.get("pairs") == "all" else {"log": trainer.logger}
        self.track = Track(pl_module, self.modules, self.batch, **{**own, **self.options})
        if self._state:
            self.track.load_state_dict(self._state)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        # Batches whose gradients are accumulated have one step.
        step, track = trainer.global_step, self.track
        if track is not None and step > (track.steps or [0])[-1]:
            track.step(step)

    def state_dict(self) -> dict[str, Any]:
        return {} if self.track is None else self.track.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._state = state


def lightning_callback(modules: Chooser, batch: Any, **options: Any) -> Any:
    """Return a callback for a Trainer of Lightning that tracks the layers of its module.

    Values go to the Trainer's logger. Checkpoints hold the track, and a run that goes on from one
    continues it. In ``DistributedDataParallel`` the first process tracks; for FSDP, call
    `simcore.Track` in every process.

    Parameters
    ----------
    modules : str, list of str, or function
        As in `simcore.record`.
    batch : tensor, dict, tuple, or list of these
        The examples on which layers are compared, as in `simcore.Track`.
    **options
        Of `simcore.Track`, such as ``every=100``. Steps are those of the optimizers.

    Returns
    -------
    callback
        Of ``lightning`` or ``pytorch_lightning``, or of both where both are imported. From the
        start of the fit on, ``callback.track`` is the `simcore.Track`.

    Raises
    ------
    ModuleNotFoundError
        Neither package is installed. Options are checked by `simcore.Track` when the fit starts.
    """
    imported = [name for name in PACKAGES if name in sys.modules]
    if not imported:
        import_optional("lightning", "lightning_callback")
        imported = [PACKAGES[0]]
    bases = (import_module(name).Callback for name in imported)
    return type("TrackCallback", (_Tracking, *bases), {})(modules, batch, options)
