"""``simcore models``, ``tasks``, ``papers`` and ``doctor``: print tables of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from simlab.steps.catalogue import DOCTOR
from simlab.steps.record import Step

Rows = tuple[Sequence[str], Sequence[tuple[str, ...]]]
_OPERATORS = ("operator", "uses", "check", "gain", "expected", "error")
_MODULE = "simlab.commands.listing"
MODELS, TASKS, PAPERS = (
    Step(
        name="models",
        path=f"{_MODULE}:models",
        text="""Print the known architectures, or a description of each model in NAMES.

An architecture that is not in the table works if it has exactly one list with as many modules as
its configuration has layers.""",
        examples=("models", 'models minilm "google/multiberts-seed_{0..24}"'),
        optional=("names",),
        has_paper=False,
    ),
    Step(
        name="tasks",
        path=f"{_MODULE}:tasks",
        text="""Print the named tasks with their texts, labels, metrics, splits and sources.

NAME:FOLDER, for example `cola:data/cola`, reads the files of a task from a local folder in the
format of the hub: parquet, jsonl, json, csv or tsv files with the names of the splits, or the
output of `save_to_disk`.""",
        examples=("tasks",),
        has_paper=False,
    ),
    Step(
        name="papers",
        path=f"{_MODULE}:papers",
        text="Print what --paper sets: the choices of a paper, as its text and its authors' code "
        "make them.",
        examples=("papers wu2020",),
        optional=("name",),
        has_paper=False,
    ),
)


def models(names: Sequence[str] | None) -> None:
    """Print the known architectures, or a description of each model.

    Parameters
    ----------
    names
        Models to find; patterns such as ``NAME_{0..24}`` are expanded.
    """
    from simlab.store import console

    console.print_rows(*(_found_models(names) if names else _architectures()))


def tasks() -> None:
    """Print the named tasks."""
    from simlab.store import console
    from simlab.tasks import TASKS as SPECS

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
        for spec in SPECS.values()
    ]
    names = ("name", "task", "kind", "texts", "label", "metrics", "splits", "from")
    console.print_rows(names, rows)


def papers(name: str | None) -> None:
    """Print the choices of a paper, or of all.

    Parameters
    ----------
    name
        Paper: ``phang2021``, ``wu2020`` or ``ren2023``; None is all.
    """
    from simlab.papers.presets import PAPERS, conditions, find_paper, setting
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


def run_doctor(values: dict[str, Any]) -> None:
    """Print what the machine has, as lines and a table for each device, or as JSON."""
    from simlab.store import console
    from simlab.store.runtime import doctor

    facts = doctor(**DOCTOR.arguments(values))
    if values["json"]:
        print(json.dumps(facts, indent=1))
        return
    for line in _machine_lines(facts):
        console.out.print(line, markup=False)
    for device in facts["devices"]:
        memory = f"{device['memory'] / 2**30:.0f} GiB"
        named = f"{device['device']}: {device['name']}, {memory}, {device['capability']}"
        console.out.print(named, markup=False)
        console.print_rows(
            _OPERATORS, [_operator_row(operator) for operator in device["operators"]]
        )


def _machine_lines(facts: dict[str, Any]) -> list[str]:
    build = facts["build"]
    kernels = ", ".join(build["cuda_architectures"]) if build["cuda"] else "none built"
    lines = [
        ", ".join(f"{name} {version}" for name, version in facts["versions"].items()),
        f"{facts['system']}; CUDA of torch: {facts['cuda'] or 'none'}",
        f"CPU: {build['cpu_isa']}; CUDA kernels: {kernels}; SIMCORE_KERNELS={build['kernels']}",
        f"checks of kernels: {facts['cache']}",
    ]
    return lines if facts["devices"] else [*lines, "no CUDA device: grids run on the CPU"]


def _operator_row(operator: dict[str, Any]) -> list[str]:
    gain = "" if operator["gain"] is None else f"{operator['gain']:.1f} x"
    expected = f"{operator['expected_gain']:g} x"
    named = (operator["operator"], operator["uses"], operator["state"])
    return [*named, gain, expected, operator["error"]]
