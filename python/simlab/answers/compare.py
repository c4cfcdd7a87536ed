"""Compare models that are named: grids, a picture and a page for all pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.answers.matches import Matches, find_matches
from simlab.answers.subjects import (
    Subject,
    Texts,
    extract_all,
    file_name,
    open_subjects,
    read_texts,
    rows_of,
    split_words,
)
from simlab.bounds import Count, FromZero, bounded
from simlab.errors import UserError
from simlab.figures.draw import plot
from simlab.models.checkpoint import length_of
from simlab.models.place import AUTO, PRECISIONS
from simlab.report.write import write_report
from simlab.representations.options import ExtractOptions
from simlab.results.reading import read_results
from simlab.similarity.catalogue import find_measure
from simlab.similarity.grids import grid

if TYPE_CHECKING:
    import pandas as pd

    from simlab.tasks import TaskOptions

_DRAWS = 100  # of measures that draw fast


@dataclass(frozen=True)
class Compared:
    """What `compare` found; its text says which layers match and which differ.

    Attributes
    ----------
    rows
        What a row of the layers is, and why.
    matches
        One `Matches` for each pair of models and each measure.
    results
        The rows of all grids, as `simlab.read_results` gives them.
    files
        The pictures, the results files and the page.
    """

    rows: str
    matches: tuple[Matches, ...]
    results: pd.DataFrame
    files: tuple[Path, ...]

    def __str__(self) -> str:
        return "\n\n".join([self.rows, *map(str, self.matches)])


@bounded
def compare(
    *models: str | Path,
    texts: str | Path | None = None,
    out: str | Path = Path("runs/compare"),
    measures: Sequence[str] = ("cka",),
    kind: str | None = None,
    limit: Count = 200,
    max_length: Count | None = None,
    weights: str = PRECISIONS[0],
    bootstrap: FromZero | None = None,
    permutations: FromZero | None = None,
    device: str = AUTO,
    task_options: TaskOptions | None = None,
    overwrite: bool = False,
) -> Compared:
    """Compare all layers of two models or more, by their names, and say which layers match.

    Layers of equal number match if their values are 1.00 (0.00 of a distance), to two digits of the
    nearer end of the interval. Other layers are paired where each is the other's closest layer, and
    closer than by chance.

    Parameters
    ----------
    models
        Two models or more: names of the hub, folders, checkpoints, revisions (``name@revision``),
        or folders of stored layers; behind them the texts, if they are a file or a named task.
    texts
        A file of texts, of which all rows are read, or a task, of which held-out texts are; in
        Python also a list of texts. None is a sample of 195 sentences that ships.
    out
        Folder for the layers, the results, the figures and the page.
    measures
        Names of measures, as `simcore grid` lists them; CKA is unbiased.
    kind
        Kind of rows, as for `extract`; None is ``token`` where the tokenizers of all models give
        the same tokens, else ``word-mean``, or ``mean`` where tokens have letters of two words.
    limit
        Number of texts, from the first.
    max_length
        Tokens kept per text; None is as in the fine-tuning of the first model that was, else 64.
    weights
        Precision in which models compute: ``float32``, ``bfloat16``, ``float16``, or ``auto``, as
        in their files.
    bootstrap
        Draws of texts for 95 % intervals; None is 100 for CKA, and none for other measures, which
        compute the grid anew for each.
    permutations
        Permutations for p-values and calibrated values; None is as for `bootstrap`.
    device
        Where models and grids run: ``cpu``, ``cuda``; ``auto`` is a GPU if there is one.
    task_options
        Columns and split of the texts.
    overwrite
        As for `truncate`.

    Returns
    -------
    Compared
        The matches of each pair as text, the results as a table, and the files.

    Raises
    ------
    UserError
        A model, measure or task is unknown, there are fewer than two models, stored layers have
        other rows, or `out` has other content and `overwrite` is False.

    Examples
    --------
    >>> from simlab import compare, extract
    >>> step = extract("minilm", "rt", "runs/reps/twin", random_init_seed=1, limit=30, kind="mean")
    >>> found = compare("minilm", "runs/reps/twin", "rt", limit=30, permutations=0, bootstrap=0)
    >>> found.matches[0].values.shape
    (7, 7)
    """
    names, texts = split_words(models, texts)
    if len(names) < 2:
        found = ", ".join(map(str, names)) or "none"
        raise UserError(f"models: wanted two models or more, found {found}")
    measures = [find_measure(name).name for name in measures]
    subjects = open_subjects(names)
    folder = Path(out)
    layers, rows = _layers_of(
        subjects,
        texts,
        folder,
        kind,
        limit,
        max_length,
        task_options,
        overwrite,
        weights=weights,
        device=device,
    )
    files, matches = [], []
    for measure in measures:
        for (x, x_layers), (y, y_layers) in combinations(zip(subjects, layers, strict=True), 2):
            name = "-".join(file_name(one) for one in (x.label, y.label, measure))
            path = folder / "results" / f"{name}.parquet"
            how = _draws(measure, bootstrap, permutations)
            both, comparison = [x_layers, y_layers], f"{x.label} x {y.label}"
            given = {"measure": measure, "comparison": comparison, "device": device, **how}
            grid(both, path, overwrite=overwrite, **given)
            files.append(path)
            matches.append(find_matches(read_results(path), x.label, y.label))
    pictures = plot(files, folder / "figures", formats=("png",))
    title = " x ".join(subject.label for subject in subjects)
    page = write_report(files, folder / "report.html", title=title)
    return Compared(rows, tuple(matches), read_results(files), (*pictures, *files, page))


def _layers_of(
    subjects: Sequence[Subject],
    texts: Texts | None,
    folder: Path,
    kind: str | None,
    limit: int,
    max_length: int | None,
    task_options: TaskOptions | None,
    overwrite: bool,
    **options: Any,
) -> tuple[list[Path], str]:
    """Return the folders of all layers, and what their rows are."""
    models = [subject.model for subject in subjects if subject.model]
    if not models:
        return [one.stored for one in subjects if one.stored], "rows are as they were stored"
    task = read_texts(texts, models, task_options, limit)
    length = length_of(models, max_length)
    chosen = ExtractOptions(kind=kind or "", max_length=length, **options)
    chosen, rows = rows_of(subjects, task, chosen)
    return extract_all(subjects, task, folder / "layers", chosen, overwrite), rows


def _draws(measure: str, bootstrap: int | None, permutations: int | None) -> dict[str, Any]:
    """Return estimator and draws of a measure."""
    options = find_measure(measure).options
    draws = _DRAWS if measure == "cka" else 0
    return {
        "bootstrap": draws if bootstrap is None else bootstrap,
        "permutations": draws if permutations is None else permutations,
        **({"estimator": "unbiased"} if "estimator" in options else {}),
    }
