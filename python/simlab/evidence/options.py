"""Options of claims: the metric, the tolerance, and which models are which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class ClaimOptions:
    """How rows are read.

    Attributes
    ----------
    metric
        The metric of truncation, skipping and freezing. None is the main metric of each task; so is
        a metric that a task has no rows of.
    tolerance
        The loss of the metric that is tolerated when top layers go.
    families
        Name of each family, and a pattern of its models' labels, such as ``{"BERT": "BERT*"}``.
    tuned, pretrained
        Patterns of the labels of fine-tuned and pretrained models, which count more than the
        stages that rows name (`simlab.evidence.labels`).
    """

    metric: str | None = None
    tolerance: float = 0.01
    families: Mapping[str, str] = field(default_factory=dict)
    tuned: str | None = None
    pretrained: str | None = None

    def family(self, model: str) -> str | None:
        """Return the first family whose pattern `model` matches."""
        matches = (name for name, like in self.families.items() if fnmatchcase(model, like))
        return next(matches, None)
