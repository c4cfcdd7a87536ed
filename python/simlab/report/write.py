"""Write the report: one page that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from simlab.errors import UserError, argument
from simlab.figures.table import without_copies
from simlab.report.curves import curves
from simlab.report.gather import gather
from simlab.report.history import folders_of, jobs, statuses
from simlab.report.planes import compress
from simlab.results.reading import read_table
from simlab.results.results import GRIDS
from simlab.results.tables import files_of
from simlab.store.files import as_paths, write_bytes
from simlab.store.runtime import versions
from simlab.tasks.specs import TASKS

_MOST_NAMED = 3  # results in the title


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
    path = Path(out)
    require_page(path)
    paths = as_paths(results)
    frame = without_copies(read_table(paths))
    if frame.empty:
        raise UserError("results: wanted rows to show, found none")
    gathered = gather(frame)
    views, text = curves(frame[~frame["experiment"].isin(GRIDS)], metric)
    folders = folders_of(paths)
    done = jobs(folders)
    text["jobs"] = compress(json.dumps(done).encode())
    sources = _sources(paths)
    for setting in gathered.settings:
        files = setting.pop("files")
        setting["sources"] = list(dict.fromkeys(sources[file] for file in files))
    names = list(dict.fromkeys(sources.values()))
    data = {
        "title": title or _title_of(names),
        "sources": names,
        "models": gathered.models,
        "axes": gathered.axes,
        "settings": gathered.settings,
        "grids": gathered.grids,
        "facts": gathered.facts,
        "trainings": gathered.trainings,
        "views": views,
        "rows": len(frame),
        "tasks": [_with_title(str(task)) for task in frame["task"].unique()],
        "jobs": len(done),
        "statuses": statuses(folders),
        "versions": versions(),
    }
    # Names of files need not be text.
    write_bytes(path, page(data, {**gathered.text, **text}).encode(errors="replace"))
    return path


def _sources(paths: list[Path]) -> dict[str, str]:
    """Return for every results file the name of the file or folder that it was given by."""
    known = {path: path.resolve() for path in paths}
    names = [_name_of(path) for path in known.values()]
    sources: dict[str, str] = {}
    for (given, path), name in zip(known.items(), names, strict=True):
        # The same name in two folders: runs-1/results and runs-2/results.
        whole = f"{path.parent.name}/{name}" if names.count(name) > 1 else name
        for file in files_of(given):
            sources.setdefault(str(file), whole)
    return sources


def _name_of(path: Path) -> str:
    return path.name if path.is_dir() else path.stem


def _with_title(task: str) -> str:
    """Return the name of a task with its name in the literature, if that says more."""
    spec = TASKS.get(task)
    if spec is None or re.sub(r"\W", "", spec.title).lower() == re.sub(r"\W", "", task).lower():
        return task
    return f"{task} ({spec.title})"


def _title_of(names: list[str]) -> str:
    *first, last = names if len(names) <= _MOST_NAMED else [*names[:2], f"{len(names) - 2} more"]
    return " and ".join([", ".join(first), last] if first else [last])


def require_page(path: Path) -> None:
    """Check that `path` may be the name of a page: it ends in .html, and is no folder."""
    if path.suffix != ".html" or path.is_dir():
        raise UserError(
            f"{argument('out', path)}: wanted the name of a file that ends in .html, found {path}"
        )


def page(data: dict[str, Any], text: dict[str, str]) -> str:
    """Return the page that shows `data`; `text` is what it unpacks when it is needed."""
    from jinja2 import Environment, StrictUndefined

    folder = resources.files("simlab.report") / "page"
    template = (folder / "page.html.j2").read_text(encoding="utf-8")
    style = (folder / "page.css").read_text(encoding="utf-8")
    # `make page` joins the modules beside it into one program.
    script = (folder / "main.min.js").read_text(encoding="utf-8").strip()
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(template).render(
        title=data["title"],
        style=style,
        script=script,
        style_hash=policy_hash(style),
        script_hash=policy_hash(script),
        data=in_script(data),
        text=text,
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
