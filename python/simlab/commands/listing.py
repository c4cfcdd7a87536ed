"""``simcore models``, ``tasks`` and ``papers``: print what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

Rows = tuple[Sequence[str], Sequence[tuple[str, ...]]]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(models)
    app.command()(tasks)
    app.command()(papers)


def models(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Models to find; patterns such as `NAME_{0..24}` are expanded."),
    ] = None,
) -> None:
    """Print the known architectures, or a description of each model in NAMES.

    An architecture that is not in the table works if it has exactly one list with as many modules
    as its configuration has layers.

    Example: `simcore models`

    Example: `simcore models minilm "google/multiberts-seed_{0..24}"`
    """
    from simlab.store import console

    console.print_rows(*(_found_models(names) if names else _architectures()))


def tasks() -> None:
    """Print the named tasks with their texts, labels, metrics, splits and sources.

    NAME:FOLDER, for example `cola:data/cola`, reads the files of a task from a local folder in the
    format of the hub: parquet, jsonl, json, csv or tsv files with the names of the splits, or the
    output of `save_to_disk`.

    Example: `simcore tasks`
    """
    from simlab.store import console
    from simlab.tasks import TASKS

    rows = [
        (
            spec.name,
            spec.title,
            spec.kind,
            ", ".join(spec.columns[:-1]),
            f"{spec.label} ({', '.join(spec.labels) or 'a number'})",
            ", ".join(spec.metrics),
            f"{spec.train}, {spec.heldout}",
            f"package or {spec.hub}" if spec.offline else spec.hub,
        )
        for spec in TASKS.values()
    ]
    names = ("name", "task", "kind", "texts", "label", "metrics", "splits", "from")
    console.print_rows(names, rows)


def papers(
    name: Annotated[
        str | None, typer.Argument(help="Paper: `phang2021`, `wu2020` or `ren2023`; default: all.")
    ] = None,
) -> None:
    """Print what --paper sets: the choices of a paper, as its text and its authors' code make them.

    Example: `simcore papers wu2020`
    """
    from simlab.papers.choice import conditions, setting
    from simlab.papers.presets import PAPERS, find_paper
    from simlab.store import console

    for paper in (find_paper(name),) if name else PAPERS.values():
        rows: list[tuple[str, str, str, str]] = []
        for choice in paper.choices:
            where = conditions(choice)
            head = f"{choice.command} {setting(choice)}" + (f" ({where})" if where else "")
            rows.append((head, choice.text, choice.code, choice.why))
        rows += [(f"{d.about} (no option)", d.text, d.code, d.why) for d in paper.differences]
        names = ("text", "code", "why")
        console.out.print(f"[bold]{paper.name}[/]: {paper.title}", soft_wrap=False)
        console.out.print(f"Code: {paper.published}\n", soft_wrap=False)
        console.print_entries([(row[0], list(zip(names, row[1:], strict=True))) for row in rows])
        console.out.print()


def _architectures() -> Rows:
    from simlab.models.architectures import KNOWN_ARCHITECTURES

    rows = [
        (
            architecture.name,
            f"{architecture.layers_path} x {architecture.count}"
            + (" (shared)" if architecture.shared else ""),
            architecture.token,
            ", ".join(path.removeprefix("base_model.") for path in architecture.head_modules),
            architecture.attention,
            ", ".join(architecture.examples),
        )
        for architecture in KNOWN_ARCHITECTURES
    ]
    names = ("architecture", "layers", "classifier token", "head", "attention", "for example")
    return names, rows


def _found_models(names: Sequence[str]) -> Rows:
    from simlab.models.architectures import text_config
    from simlab.models.load import load_config
    from simlab.models.recognise import classifier_token
    from simlab.models.sources import expand_names, resolve

    rows = []
    for name in expand_names(names):
        source = resolve(name)
        config = load_config(source)
        text = text_config(config)
        rows.append(
            (
                name,
                config.model_type,
                str(text.num_hidden_layers),
                str(text.hidden_size),
                classifier_token(config),
                ", ".join(config.architectures or ()),
            )
        )
    return ("model", "type", "layers", "width", "classifier token", "saved as"), rows
