"""The options of an injection: the layer and tokens to replace, and the maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simlab.bounds import Count, Length
from simlab.experiments.options import MapOptions, check_choice
from simlab.store.results import (
    IDENTITY,
    ITSELF,
    METHODS,
    RANDOM_CLASSIFIER,
    RANDOM_EMBEDDINGS,
    RANDOM_LABELS,
)

# The methods of table 5 of Ren et al. 2023, which are the default.
TABLE_5 = (
    *(ITSELF, IDENTITY, "linear", "cca", "pwcca", "mlp", "inn"),
    *(RANDOM_CLASSIFIER, RANDOM_EMBEDDINGS, RANDOM_LABELS),
)
SAME_WIDTH = (IDENTITY, "inn")
CLASSIFIER, ALL = "cls", "all"
TOKENS = (CLASSIFIER, ALL)
INJECTED = "tokens"
MEAN, MEAN_ALL, MEAN_PADDED = MEANS = ("mean", "mean-all", "mean-padded")  # as kinds of rows
FIT_ON = (INJECTED, *MEANS)
WHOLE_MODEL, ONLY_CLASSIFIER = CONTINUE_WITH = ("model", "classifier")
FIT_SIZE = 1600  # examples, as in the tables of Ren et al. 2023


@dataclass(frozen=True)
class InjectOptions(MapOptions):
    """Options of an injection: the layer and tokens to replace, and the maps.

    Attributes
    ----------
    layer
        Layer; 0 is the embedding output; None is the last layer.
    methods
        Methods: ``itself``, ``identity``, ``linear``, ``linear-gd``, ``cca``, ``svcca``, ``pwcca``,
        ``mlp``, ``inn``, ``random-classifier``, ``random-embeddings`` or ``random-labels``; None is
        all except svcca and linear-gd, without identity and inn between models of different
        widths, and without random-classifier where the model before the fine-tuning of B cannot be
        found.
    tokens
        Tokens to replace: ``cls``, the classifier token, or ``all``.
    fit_on
        Rows that the maps are fitted on: ``tokens``, the tokens of the training texts that would be
        replaced; ``mean``, the mean over the tokens of each text; ``mean-all``, over special tokens
        too; or ``mean-padded``, over all positions, padding included, as in the code of Ren et al.
        2023. The maps are applied to single tokens in any case.
    continue_with
        Part of B that continues from the mapped states: ``model``, all of B after the layer; or
        ``classifier``, its last weights, after A's own layers and pooler, as in the code of Ren et
        al. 2023.
    fit_size
        Training examples that the maps are fitted on.
    max_length
        Tokens kept per example; None is as in the fine-tuning of model B, else 64.
    seed
        Seed of trained maps, and of random heads, states and labels.
    original
        Model before the fine-tuning of B, for ``random-classifier``; None is the model that the
        checkpoint names.
    """

    layer: int | None = None
    methods: tuple[str, ...] | None = None
    tokens: str = CLASSIFIER
    fit_on: str = INJECTED
    continue_with: str = WHOLE_MODEL
    fit_size: Count = FIT_SIZE
    max_length: Length | None = None
    original: str | None = None

    def check(self) -> None:
        """Raise UserError if a name is unknown, or a number is out of range."""
        self.check_maps(self.methods or (), METHODS)
        check_choice(self, "tokens", TOKENS)
        check_choice(self, "fit_on", FIT_ON)
        check_choice(self, "continue_with", CONTINUE_WITH)

    def protocol(self, method: str | None = None) -> dict[str, Any]:
        """Return the choices that results name, of one method or of all.

        Rows of one method with the same protocol can be averaged; files of another protocol have
        other names.
        """
        return {
            "fit_on": self.fit_on,
            "continue_with": self.continue_with,
            **self.choices(method),
        }
