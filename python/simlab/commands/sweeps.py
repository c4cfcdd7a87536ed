"""Commands of sweeps: ``sweep``, ``status``, and ``demo``, whose file is ``demo.toml``."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from simlab.commands.options import explain_interrupt
from simlab.errors import UserError, argument, did_you_mean, spelled
from simlab.steps.catalogue import STATUS, SWEEP
from simlab.steps.record import Step

if TYPE_CHECKING:
    from simlab.sweeps.disk import Estimate
    from simlab.sweeps.driver import Report
    from simlab.sweeps.status import Count
    from simlab.sweeps.sweep import Sweep

FAILED = 1  # the exit code of a sweep with jobs that failed
_MOST_NAMED = 20  # failed jobs
_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_SECONDS = 5.0  # between two lines of `status --watch`
# Processes of the demo on a machine without a GPU, each with a thread for every core: where one
# reads, tokenizes or waits for its own threads, the other computes.
_WORKERS = 2
# What the demo's pictures show, by the ends of their names.
_PICTURES = {
    "cka-unbiased": "low layers stay in fine-tuning; high ones change, and are alike",
    "truncation": "accuracy of the head on each layer, beside TF-IDF",
    "models": "words and attention: all layers of all models by five measures",
}
_PAGE_SHARE = 0.05  # of the time of a run, for pages before its end
DEFAULT_FOLDER = Path("runs/demo")
FILE = Path(__file__).with_name("demo.toml")
DEMO = Step(
    name="demo",
    path="simlab.commands.sweeps:demo",
    text=f"""Run a whole study offline: fine-tune, extract, compare, truncate, draw.

The demo is a sweep, whose file is `{FILE.name}` in the package; `simcore sweep` runs a copy of it
with other models and tasks. It takes minutes on two cores; the same command continues it.""",
    examples=("demo --out runs/demo",),
    has_paper=False,
)


def run_sweep(values: dict[str, Any]) -> None:
    """Run the sweep, draw its figures, write its page, and print what was done; or print a plan."""
    from simlab.sweeps.sweep import Sweep

    file = values["file"]
    sweep = Sweep.from_file(file)
    out = values["out"] and Path(values["out"])
    if values["plan"]:
        with _file_in_errors(file):
            _print_plan(sweep, out, values["workers"] or 0)
        return
    if out is None:
        raise UserError(
            f"{argument('out')}: wanted a folder for the sweep, or {argument('plan', True)}; found "
            "neither"
        )
    with explain_interrupt(out), _file_in_errors(file):
        report = sweep.run(**SWEEP.arguments(values))
    _print_report(report, out)
    if report.failed:
        raise typer.Exit(FAILED)


@contextmanager
def _file_in_errors(file: str | Path) -> Iterator[None]:
    """Let errors about a key of the sweep name its file."""
    try:
        yield
    except UserError as error:
        about, key, rest = str(error).partition("sweep, key ")
        if about or not key:
            raise
        raise UserError(f"sweep {file}, key {rest}") from error


def _print_report(report: Report, out: Path) -> None:
    """Print how many jobs are done and which failed, and write the page if there are figures."""
    from simlab.store import console

    new = sum(report.done.values())
    done = report.jobs - len(report.failed) - report.waiting
    drawn = f", {len(report.figures)} figures in {out / 'figures'}" if report.figures else ""
    console.out.print(
        f"{out}: {done:,} of {report.jobs:,} jobs done, {new:,} of them now{drawn}; "
        f"rows in {out / 'results'}"
    )
    if report.figures:
        console.out.print(f"{_write_page(out)}: open it in a browser", markup=False)
    if report.failed:
        waiting = f"; {report.waiting:,} jobs wait for them" if report.waiting else ""
        console.out.print(f"{len(report.failed):,} jobs failed{waiting}:")
        lines = [f"{title}: {error}" for title, error in report.failed[:_MOST_NAMED]]
        if len(report.failed) > _MOST_NAMED:
            lines.append(f"... and {len(report.failed) - _MOST_NAMED:,} more")
        for line in lines:
            console.out.print(f"  {line}", markup=False)
        again = spelled(argument("retry_failed", True))
        console.out.print(f"tracebacks are in {out / 'failures'}; {again} tries again")


def _write_page(out: Path) -> Path:
    from simlab.report.write import write_report

    return write_report(out / "results", out / "report.html", title=out.resolve().name)


def _print_plan(sweep: Sweep, out: Path | None, workers: int) -> None:
    from simlab.models.sources import similar_name
    from simlab.store import console
    from simlab.sweeps.sources import missing_data, missing_models
    from simlab.tasks.specs import TASKS

    plan, done, taken = sweep.estimate(out)
    finished = Counter(job.kind for job, there in zip(plan.jobs, done, strict=True) if there)
    counts = [(kind, n, finished[kind]) for kind, n in plan.counts().items()]
    counts.append(("all", len(plan), sum(done)))
    table = [(kind, f"{n:,}", f"{there:,}") for kind, n, there in counts]
    console.print_rows(("jobs", "planned", "done"), table)
    lines = [*_estimate_lines(taken, sweep.spec.keep, max(workers, 1)), *plan.remarks()]
    wanted = [not there for there in done]
    if models := [f"{name}{similar_name(name)}" for name in missing_models(plan, wanted)]:
        lines.append(f"to download from the hub: {', '.join(models)}")
    data = missing_data(plan, wanted)
    if tasks := [name if name in TASKS else f"{name}{did_you_mean(name, TASKS)}" for name in data]:
        lines.append(f"tasks to load from the hub: {', '.join(tasks)}")
    for line in lines:
        console.out.print(line, markup=False)


def _estimate_lines(taken: Estimate, keep: str, workers: int) -> Iterator[str]:
    """Yield the disk space, peak and time of a plan."""
    from simlab.store.console import span

    sizes = ", ".join(f"{kind} {_amount(size)}" for kind, size in taken.bytes_by_kind.items())
    peak = ""
    if taken.peak < sum(taken.bytes_by_kind.values()):
        peak = f", at most {_amount(taken.peak)} at once (keep = {keep!r})"
    yield f"disk space of all objects: {sizes or 'none'}{peak}"
    at_once = f" with {workers} at once" if workers > 1 else ""
    if taken.seconds or not taken.unknown:
        yield f"time{at_once}: {span(taken.seconds / workers)}, from jobs that are done"
    if taken.unknown:
        unknown = ", ".join(f"{count:,} {kind}" for kind, count in taken.unknown.items())
        yield f"time of {unknown}: unknown, because no job of the kind is done"


def _amount(size: float) -> str:
    """Return a number of bytes in words: ``1.4 GB``."""
    for unit, one in _UNITS:
        if size >= one:
            return f"{size / one:.1f} {unit}"
    return f"{size:.0f} B"


def run_status(values: dict[str, Any]) -> None:
    """Print the status, once or until Ctrl-C."""
    try:
        _print_status(values)
        while values["watch"]:
            time.sleep(_SECONDS)
            _print_status(values)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _print_status(values: dict[str, Any]) -> None:
    from simlab.store import console
    from simlab.sweeps.status import read_status

    status = read_status(**STATUS.arguments(values))
    if values["json"]:
        print(json.dumps(status.as_dict()), flush=True)
        return
    counts = {kind: asdict(count) for kind, count in (*status.kinds.items(), ("all", status.total))}
    table = [(kind, *(f"{n:,}" for n in count.values())) for kind, count in counts.items()]
    console.print_rows(("jobs", *counts["all"]), table)
    left = status.seconds_left
    when = "unknown" if left is None else console.span(left)
    console.out.print(f"{status.per_hour:,.0f} jobs an hour; time left: {when}", markup=False)
    if status.last_error:
        console.out.print(f"last error: {status.last_error}", markup=False)


def run_demo(values: dict[str, Any]) -> None:
    """Run the demo, and print the scores of the models and, last, what to look at."""
    from simlab.store.console import out as console

    out = Path(values["out"] or DEFAULT_FOLDER)
    console.print(
        f"the demo runs a sweep, as `simcore sweep {FILE} --out {out}` does", markup=False
    )
    with explain_interrupt(out):
        report = demo(**DEMO.arguments(values))
    if not report.failed:
        _print_scores(out)
        console.print(f"models by their names: {out / 'checkpoints'}, {out / 'representations'}")
    _print_report(report, out)
    if report.failed:
        raise typer.Exit(FAILED)
    for name, shown in _PICTURES.items():
        for file in report.figures:
            if file.name.endswith(f"-{name}.png"):
                console.print(f"{file}: {shown}", markup=False)


def demo(out: str | Path = DEFAULT_FOLDER) -> Report:
    """Run the sweep of ``demo.toml``.

    Parameters
    ----------
    out
        Folder for everything that the demo writes.
    """
    from simlab.sweeps.pool import cores, visible_gpus
    from simlab.sweeps.sweep import Sweep

    sweep, page = Sweep.from_file(FILE), _EarlyPage(Path(out))
    if visible_gpus():  # a process each
        return sweep.run(out, meanwhile=page.write)
    return sweep.run(out, workers=_WORKERS, threads=cores(), meanwhile=page.write)


class _EarlyPage:
    """The page of a sweep that is at work: there with the first grids, and anew as jobs end."""

    def __init__(self, out: Path) -> None:
        self.out, self._next = out, 0.0
        self._shown: Mapping[str, Count] = {}

    def write(self) -> None:
        """Write the page if there are grids and jobs have ended, in a small share of the time."""
        from simlab.store import console
        from simlab.sweeps.status import read_status

        status, begun = read_status(self.out), time.monotonic()
        kinds, is_over = status.kinds, not (status.total.running + status.total.waiting)
        if is_over or not kinds["grid"].done or kinds == self._shown or begun < self._next:
            return
        try:
            page = _write_page(self.out)
        except (OSError, UserError) as error:  # jobs go on, and the page at their end tells again
            console.note(f"no page before the end: {error}")
            self._next = math.inf
            return
        if not self._shown:
            console.note(f"{page} has the first grids, and is written anew while jobs run")
        self._shown, self._next = kinds, begun + (time.monotonic() - begun) / _PAGE_SHARE


def _print_scores(out: Path) -> None:
    """Print the held-out metrics of the models and the baselines."""
    from simlab.results.reading import read_results
    from simlab.results.results import BASELINE
    from simlab.store import console

    frame = read_results(out / "results")
    frame = frame[frame["experiment"] == BASELINE].drop_duplicates(["label_x", "measure"])
    metrics = list(dict.fromkeys(frame["measure"]))
    table = frame.pivot(index="label_x", columns="measure", values="value")
    table = table.loc[frame["label_x"].unique(), metrics]
    rows = [(label, *(f"{value:.3f}" for value in values)) for label, *values in table.itertuples()]
    console.print_rows((f"{frame['n'].iloc[0]:,} held-out examples", *metrics), rows)
    main = frame[frame["measure"] == metrics[0]]
    tuned = main["base_x"].notna()  # a baseline has no base
    if main.loc[tuned, "value"].min() <= main.loc[~tuned, "value"].max():
        console.out.print(
            "[yellow]A fine-tuned model does not beat every baseline with this recipe.[/]"
        )
