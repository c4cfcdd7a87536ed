"""The options of an injection: the layer and tokens to replace, and the maps."""

from __future__ import annotations

from dataclasses import dataclass

from simlab.errors import UserError
from simlab.experiments.options import check_counts, check_methods
from simlab.store.results import IDENTITY, METHODS

# The methods of table 5 of Ren et al. 2023, which are the default.
TABLE_5 = tuple(name for name in METHODS if name not in ("svcca", "linear-gd"))
SAME_WIDTH = (IDENTITY, "inn")
CLASSIFIER, ALL = "cls", "all"
TOKENS = (CLASSIFIER, ALL)
FIT_SIZE = 1600  # examples, as in the tables of Ren et al. 2023


@dataclass(frozen=True)
class InjectOptions:
    """Options of an injection: the layer and tokens to replace, and the maps.

    Attributes
    ----------
    layer
        Number of the layer; 0 is the embedding output, None the last layer.
    methods
        Names in `METHODS`. None is `TABLE_5`, without the two methods in `SAME_WIDTH` if the models
        have different widths.
    tokens
        The tokens to replace: ``cls``, the classifier token, or ``all``.
    fit_size
        Number of training examples that the maps are fitted on.
    max_length
        Tokens kept per example; None is the length of B's fine-tuning.
    epochs
        Passes over the rows for maps that are trained; None is the default of the aligners.
    seed
        Seed of maps that are trained, and of random states and labels.
    """

    layer: int | None = None
    methods: tuple[str, ...] | None = None
    tokens: str = CLASSIFIER
    fit_size: int = FIT_SIZE
    max_length: int | None = None
    epochs: int | None = None
    seed: int = 0

    def check(self) -> None:
        """Raise UserError if a method or the tokens are unknown, or a number is out of range."""
        check_methods(self.methods or (), METHODS)
        if self.tokens not in TOKENS:
            raise UserError(f"--tokens {self.tokens}: wanted {' or '.join(TOKENS)}")
        check_counts(self, "fit_size", "epochs")
