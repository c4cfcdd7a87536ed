"""Write the report: one page that needs nothing else.

The jobs behind results are the records that they leave in their folders (`store.jobs.RECORD`). A
file that is no record, because another program wrote it or because it is damaged, is left out: the
page shows results, whatever lies beside them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, FiniteFloat, ValidationError

from simlab.errors import UserError, argument
from simlab.figures.draw import curve_figures, drawn
from simlab.results.reading import PLAN, read_table
from simlab.results.results import COLUMNS, DRAWS, GRIDS
from simlab.results.tables import files_of
from simlab.store.files import as_paths, write_bytes
from simlab.store.jobs import PARTIAL_SUFFIX, RECORD, is_owned
from simlab.store.runtime import versions
from simlab.tasks.specs import TASKS
from simlab.tasks.task import of_metric

if TYPE_CHECKING:
    import pandas as pd

_MOST_NAMED = 3  # results in the title
# Neither XML nor a font has them; JSON in options has them escaped.
_NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_TEXTS = ("label_x", "label_y", "task", "comparison")

# What the filter of the page names, and the columns that hold it.
_FIELDS = {
    "task": ("task",),
    "kind": ("kind",),
    "measure": ("measure",),
    "model": ("label_x", "label_y"),
    "seed": ("seed_x", "seed_y"),
}
_KEY = re.compile(r"[0-9a-f]{64}")  # of an object of a sweep
_OBJECT = "object.json"  # beside the record of an object of a sweep: its kind and title
# Of a sweep: what `simcore status --json` prints, and failed jobs by title and error.
_STATUS = "status.json"
_LOCK = ".lock"  # which the process that runs a sweep holds
_Record = TypeVar("_Record", bound=BaseModel)


def write_report(
    results: str | Path | Sequence[str | Path],
    out: str | Path = Path("report.html"),
    *,
    title: str | None = None,
    metric: str | None = None,
) -> Path:
    """Write one page that shows every grid, curve and table of the results.

    The page is a single file of HTML, which a browser opens from disk and which loads nothing.

    Parameters
    ----------
    results
        Results files, or folders of results files; for the folder of a sweep, the page also shows
        the jobs that were run.
    out
        The page (.html); an earlier page is replaced.
    title
        Heading of the page; None is the names of the results.
    metric
        Metric of the curves; None is the main metric of each task.

    Returns
    -------
    Path
        `out`.

    Raises
    ------
    UserError
        The results cannot be read or have nothing to show, or `out` cannot be written.

    Examples
    --------
    >>> from simlab import TaskOptions, influence, write_report
    >>> few = TaskOptions(train_size=64, heldout_size=32)
    >>> step = influence("minilm", "rt", "runs/results/influence.parquet", task_options=few)
    >>> write_report(step.path, "runs/report.html")
    PosixPath('runs/report.html')
    """
    from simlab.figures.table import without_copies
    from simlab.report.gather import gather
    from simlab.report.planes import compress

    path = Path(out)
    if path.suffix != ".html" or path.is_dir():
        raise UserError(
            f"{argument('out', path)}: wanted the name of a file that ends in .html, found {path}"
        )
    paths = as_paths(results)
    frame = without_copies(read_table(paths))
    if frame.empty:
        raise UserError("results: wanted rows to show, found none")
    data = vars(gather(frame))
    text, sources, folders = data.pop("text"), _sources(paths), folders_of(paths)
    for setting in data["settings"]:
        files = setting.pop("files")
        setting["sources"] = list(dict.fromkeys(sources[file] for file in files))
    views, pictures = curves(frame[~frame["experiment"].isin(GRIDS)], metric)
    names, done = list(dict.fromkeys(sources.values())), jobs(folders)
    data |= {
        "title": title or _title_of(names),
        "sources": names,
        "views": views,
        "rows": len(frame),
        "tasks": [_with_title(str(task)) for task in frame["task"].unique()],
        "jobs": len(done),
        "statuses": statuses(folders),
        "versions": versions(),
    }
    text |= pictures | {"jobs": compress(json.dumps(done).encode())}
    write_bytes(path, page(data, text).encode(errors="replace"))  # names of files need not be text
    return path


def _sources(paths: list[Path]) -> dict[str, str]:
    """Return for every results file the name of the file or folder that it was given by."""
    resolved = {path: path.resolve() for path in paths}
    names = [path.name if path.is_dir() else path.stem for path in resolved.values()]
    sources: dict[str, str] = {}
    for (given, path), name in zip(resolved.items(), names, strict=True):
        # The same name in two folders: runs-1/results and runs-2/results.
        whole = f"{path.parent.name}/{name}" if names.count(name) > 1 else name
        for file in files_of(given):
            sources.setdefault(str(file), whole)
    return sources


def _with_title(task: str) -> str:
    """Return the name of a task with its name in the literature, if that says more."""
    spec = TASKS.get(task)
    if spec is None or re.sub(r"\W", "", spec.title).lower() == re.sub(r"\W", "", task).lower():
        return task
    return f"{task} ({spec.title})"


def _title_of(names: list[str]) -> str:
    *first, last = names if len(names) <= _MOST_NAMED else [*names[:2], f"{len(names) - 2} more"]
    return " and ".join([", ".join(first), last] if first else [last])


def page(data: dict[str, Any], text: dict[str, str]) -> str:
    """Return the page that shows `data`; `text` is what it unpacks when it is needed."""
    from jinja2 import Environment, StrictUndefined

    folder = resources.files("simlab.report") / "page"
    # `make page` joins the modules beside main.min.js into this one program.
    names = ("page.html.j2", "page.css", "main.min.js")
    template, style, script = ((folder / name).read_text(encoding="utf-8") for name in names)
    script = script.strip()
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(template).render(
        title=data["title"],
        style=style,
        script=script,
        style_hash=policy_hash(style),
        script_hash=policy_hash(script),
        data=in_script(data),
        text=text,
        not_done=[*_not_done(data["statuses"])],
    )


def in_script(data: Any) -> str:
    """Return `data` as JSON that cannot end the element it stands in."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def policy_hash(content: str) -> str:
    """Return what the content security policy of a page names an element by."""
    digest = hashlib.sha256(content.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def curves(
    frame: pd.DataFrame, metric: str | None = None
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the figures, described as JSON values, and their compressed pictures and rows."""
    from simlab.report.planes import compress

    frame = frame.assign(
        **{n: frame[n].str.replace(_NO_TEXT, "\ufffd", regex=True) for n in _TEXTS}
    )
    views: list[dict[str, Any]] = []
    text: dict[str, str] = {}
    tables: dict[int, str] = {}  # several figures show the same rows
    for number, (name, figure, rows) in enumerate(curve_figures(of_metric(frame, metric))):
        picture = f"figure-{number}"
        text[picture] = compress(drawn(figure, "svg"))
        if id(rows) not in tables:
            tables[id(rows)] = f"rows-{number}"
            text[f"rows-{number}"] = compress(_table(rows))
        width, height = map(float, figure.get_size_inches())
        views.append(
            {
                "name": name,
                "picture": picture,
                "rows": tables[id(rows)],
                "count": len(rows),
                "title": str(figure.get_label()),
                "width": round(width * 96),
                "shape": round(height / width, 3),
                # Each value once, which the page's filter searches.
                "of": {
                    field: sorted({v for name in names for v in rows[name].dropna().tolist()})
                    for field, names in _FIELDS.items()
                },
            }
        )
    return views, text


def _table(rows: pd.DataFrame) -> bytes:
    """Return rows as JSON: the names of the columns that have a value, and the values."""
    filled = [name for name in COLUMNS if name != DRAWS and rows[name].notna().any()]
    table = rows[filled].astype(object).to_numpy().tolist()
    plain = [[_plain(value) for value in row] for row in table]
    return json.dumps({"columns": filled, "rows": plain}, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    import pandas as pd

    if value is pd.NA or value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return str(value) if isinstance(value, float) and math.isinf(value) else value


class _Job(BaseModel):
    inputs: dict[str, Any]
    seconds: FiniteFloat


class _Object(BaseModel):
    key: str
    kind: str
    title: str


class _Plan(BaseModel):
    jobs: list[tuple[int, str, list[int]]]  # the key is in the middle


class _Failure(BaseModel):
    title: str
    error: str


class _Status(BaseModel):
    kinds: dict[str, dict[str, int]]
    last_error: str | None = None
    failed: list[_Failure] = []


def jobs(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return every finished and unfinished job below the folders, as JSON values."""
    entries = []
    for folder in folders:
        plan = _read(folder / PLAN, _Plan)
        keys = [] if plan is None else [key for _, key, _ in plan.jobs]
        numbers = {key: number for number, key in enumerate(keys)}
        files = sorted(_records(folder))
        for file in sorted(files, key=lambda file: numbers.get(file.parent.name, len(numbers))):
            record, stored = _read(file, _Job), _read(file.with_name(_OBJECT), _Object)
            path = _short(file.parent.relative_to(folder.parent))
            if record is not None:
                entries.append(
                    {
                        "name": path if stored is None else f"{stored.kind} {stored.title}",
                        "path": path,
                        "inputs": dict(_named(record.inputs)),
                        "seconds": round(record.seconds, 1),
                        "done": not file.parent.name.endswith(PARTIAL_SUFFIX),
                    }
                )
    return entries


def _short(place: Path) -> str:
    """Return the path of a job; of an object of a sweep, its kind and the start of its key."""
    *_, kind, shelf, key = ("", "", "", *place.parts)
    is_object = _KEY.fullmatch(key) and key.startswith(shelf)
    return str(Path(place.parts[0], kind, key[:12])) if is_object else str(place)


def statuses(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return what is done, has failed and is missing in the folders that say so."""
    found = []
    for folder in folders:
        if (status := _read(folder / _STATUS, _Status)) is None:
            continue
        if not is_owned(folder / _LOCK):  # what ran when the process ended waits for the next one
            for counts in status.kinds.values():
                counts["waiting"] = counts.get("waiting", 0) + counts.get("running", 0)
                counts["running"] = 0
        said = status.model_dump(include={"kinds", "failed"})
        found.append({"folder": folder.name, "error": status.last_error or ""} | said)
    return found


def _not_done(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each folder with jobs that run or wait."""
    for status in found:
        kinds = status["kinds"]
        of = {
            state: ", ".join(f"{n:,} {kind}" for kind in kinds if (n := kinds[kind].get(state)))
            for state in ("running", "waiting")
        }
        if any(of.values()):
            done = sum(counts.get("done", 0) for counts in kinds.values())
            jobs = sum(sum(counts.values()) for counts in kinds.values())
            rest = "".join(f"; {state}: {names}" for state, names in of.items() if names)
            yield (
                f"{done:,} of {jobs:,} jobs of {status['folder']} were done when this page was "
                f"written{rest}."
            )


def folders_of(results: Sequence[Path]) -> list[Path]:
    """Return the folders whose records say how results were made."""
    folders = []
    for path in results:
        place = path.resolve()
        folder = place if place.is_dir() else place.parent
        if statuses([folder.parent]):
            folders.append(folder.parent)
        elif place.is_dir() or statuses([folder]):
            folders.append(folder)
    return list(dict.fromkeys(folders))


def _records(folder: Path) -> Iterator[Path]:
    """Yield the records below a folder; hidden folders are being replaced."""
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if RECORD in files:
            yield Path(place) / RECORD


def _read(file: Path, kind: type[_Record]) -> _Record | None:
    """Return what a file holds; None if it is none of its kind, or has just been replaced."""
    try:
        return kind.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None


def _named(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and words of inputs; an input within another one has the names of both."""
    for name, value in sorted(values.items()):
        if isinstance(value, dict) and value:
            yield from _named(value, f"{before}{name}.")
        elif isinstance(value, list) and not any(isinstance(part, (dict, list)) for part in value):
            yield before + name, ", ".join(map(_words, value))
        else:
            yield before + name, _words(value)


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
