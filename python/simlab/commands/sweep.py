"""``simcore sweep``: run or continue a study that stands in one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simlab.commands.options import explain_interrupt
from simlab.errors import UserError, argument

if TYPE_CHECKING:
    from simlab.sweeps.sweep import Sweep

FAILED = 1


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(sweep)


def sweep(
    file: Annotated[Path, typer.Argument(help="The sweep file (.toml).")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the sweep; with --plan, to see what is done there."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print the jobs, disk space and time; run nothing.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try jobs again that failed before.")
    ] = False,
    workers: Annotated[
        int,
        typer.Option(
            min=0,
            help="Processes at once; default (0): one for each GPU, else one; with `ray`: as many "
            "as the nodes have room for.",
        ),
    ] = 0,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of each process; default: an equal share of the cores."),
    ] = None,
    figures: Annotated[
        bool,
        typer.Option(
            "--figures/--no-figures",
            help="At the end, draw the figures and write the page.",
        ),
    ] = True,
    engine: Annotated[
        str,
        typer.Option(help="Where jobs run: `local`, or `ray`: on the nodes of a Ray cluster."),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            help="With `ray`: the cluster, HOST:PORT of its head or `auto`; default: one that is "
            "started on this machine alone."
        ),
    ] = None,
    resources: Annotated[
        list[str] | None,
        typer.Option(
            help="With `ray`: what a job of a kind takes, such as `finetune:gpus=0.5,memory=16GB`; "
            "repeat it for other kinds."
        ),
    ] = None,
) -> None:
    """Run the study in FILE: fine-tuning, representations, grids, experiments, figures.

    The same command continues an interrupted run, whatever ended it. What is done is not done
    again, also when FILE has changed. If jobs failed, the exit code is 1.

    Example: `simcore sweep examples/sweeps/phang2021-offline.toml --plan`

    Example: `simcore sweep examples/sweeps/phang2021-offline.toml --out runs/phang --workers 2`

    Example: `simcore sweep examples/sweeps/ren2023.toml --out /nfs/ren --engine ray --address auto`
    """
    from simlab.store import console
    from simlab.sweeps.driver import failed_lines
    from simlab.sweeps.sweep import Sweep

    found = Sweep.from_file(file)
    if plan:
        _print_plan(found, out, workers)
        return
    if out is None:
        raise UserError(
            f"{argument('out')}: wanted a folder for the sweep, or {argument('plan', True)}; found "
            "neither"
        )
    with explain_interrupt(out):
        report = found.run(
            out,
            workers=workers,
            threads=threads,
            engine=engine,
            address=address,
            resources=resources or (),
            retry_failed=retry_failed,
            figures=figures,
        )
    new = sum(report.done.values())
    done = report.jobs - len(report.failed) - report.waiting
    drawn = f", {len(report.figures)} figures in {out / 'figures'}" if report.figures else ""
    console.out.print(
        f"{out}: {done:,} of {report.jobs:,} jobs done, {new:,} of them now{drawn}; "
        f"rows in {out / 'results'}"
    )
    if report.figures:
        from simlab.report.write import write_report

        page = write_report(out / "results", out / "report.html", title=out.resolve().name)
        console.out.print(f"{page}: open it in a browser", markup=False)
    if report.failed:
        waiting = f"; {report.waiting:,} jobs wait for them" if report.waiting else ""
        console.out.print(f"{len(report.failed):,} jobs failed{waiting}:")
        for line in failed_lines(report.failed):
            console.out.print(f"  {line}", markup=False)
        console.out.print(f"tracebacks are in {out / 'failures'}; --retry-failed tries again")
        raise typer.Exit(FAILED)


def _print_plan(found: Sweep, out: Path | None, workers: int) -> None:
    from simlab.store import console
    from simlab.sweeps.missing import (
        missing_data,
        missing_models,
        with_similar,
        with_similar_tasks,
    )
    from simlab.sweeps.show import plan_lines, plan_table

    plan, done, taken = found.estimate(out, max(workers, 1))
    console.print_rows(*plan_table(plan, done))
    lines = plan_lines(taken, found.spec.keep, max(workers, 1))
    wanted = [not there for there in done]
    if missing := missing_models(plan, wanted):
        lines.append(f"to download from the hub: {with_similar(missing)}")
    if tasks := missing_data(plan, wanted):
        lines.append(f"tasks to load from the hub: {with_similar_tasks(tasks)}")
    for line in lines:
        console.out.print(line, markup=False)
