"""Alignment studies (Ren et al. 2023, section 5 and appendix B.2) over stored representations.

For a set of models, a study has up to four parts: the error of the map from each layer of a model
to the same layer of another model (figures 2, 4 and 5); from each layer, or head of attention, of a
model to each of another model (figures 6 and 8); from each layer to each other layer of the same
model (figure 3); and the complexity of every layer, its nuclear norm (B.2). Maps are fitted on some
examples and judged on others. In representations of attention, word pairs are rows and heads are
columns (`simcore.distributed_attention`); for single heads see `align_rows.units_of`.

A study is a folder of results files, one file for each ordered pair of models and method. So an
interrupted study continues where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simlab.bounds import replaced
from simlab.experiments.align_part import Part
from simlab.experiments.align_rows import Member, load_members, note_few_rows
from simlab.experiments.complexity import COMPLEXITIES
from simlab.experiments.options import StudyOptions, drawn_pairs
from simlab.results.results import ACROSS, ALIGNMENT, COMPLEXITY, WITHIN
from simlab.store.jobs import Outcome


def align_study(
    folders: Sequence[str | Path],
    out: str | Path,
    options: StudyOptions | None = None,
    *,
    judge: Sequence[str | Path] = (),
    overwrite: bool = False,
    **changes: Any,
) -> list[Outcome]:
    """Write the errors of maps from every model to every other, and the complexity of every layer.

    Parameters
    ----------
    folders
        Representation folders (`extract`), one for each model, with the same rows and kind.
    out
        The folder for the results files, one for each ordered pair of models and method.
    options, **changes
        How to align; keywords replace fields of `StudyOptions`, such as
        ``methods=("linear", "inn")`` or ``within=True``.
    judge
        Representation folders of other examples, or folders of such folders: maps are fitted on the
        rows of `folders` and judged on the rows of the folder with the same label. By default a
        share of the examples of `folders` is held out.
    overwrite
        Replace results files that were made from other inputs; if False, raise an error instead.

    Returns
    -------
    list of Outcome
        Paths of the results files, and whether they were there before; `read_results` reads them.

    Raises
    ------
    UserError
        A folder has no representations, two folders differ in their rows or numbers of layers or
        have the same label, a model has no folder to judge on, there are too few examples or pairs,
        or `out` has files that `overwrite` would replace.

    Examples
    --------
    >>> from simlab import TaskOptions, align_study, extract
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> pair = ["runs/tokens/orig", "runs/tokens/random"]
    >>> tokens = {"kind": "token", "split": "train", "task_options": few}
    >>> step = extract("minilm", "rt", pair[0], label="ORIG", **tokens)
    >>> step = extract("minilm", "rt", pair[1], label="RANDOM", random_init_seed=0, **tokens)
    >>> steps = align_study(pair, "runs/results/alignment", methods=("linear",))
    >>> len(steps)  # both directions of the pair, and two measures of the complexity of each
    6
    """
    options = replaced(options or StudyOptions(), changes)
    options.check()
    out = Path(out)
    members = load_members(folders, judge, options)
    drawn = drawn_pairs(len(members), options.pairs, options.pair_seed, options.directions)
    pairs: list[tuple[Member, ...]] = [(members[i], members[j]) for i, j in drawn]
    note_few_rows(members[0], options)
    # The cheapest first.
    alone: list[tuple[Member, ...]] = [(member,) for member in members]
    kinds = [(COMPLEXITY, alone), (ALIGNMENT, pairs)]
    kinds += [(WITHIN, alone)] if options.within else []
    kinds += [(ACROSS, pairs)] if options.across_layers else []
    parts = [
        Part(kind, method, models, options)
        for kind, several in kinds
        for models in several
        for method in (COMPLEXITIES if kind == COMPLEXITY else options.methods)
    ]
    return [part.ensure(out / part.file_name, overwrite=overwrite) for part in parts]
