"""Tables of the benchmarks as Markdown, from the files of ``bench/results``.

A page has a line such as ``<!-- measured: cka -->`` where the table of a family shall stand. Every
table shows the newest row of each job and contestant. Jobs describe themselves: what the page says
of a job's input is read from the job in `bench`.
"""

import json
import re
from dataclasses import fields

from bench import rows as bench_rows

MARKER = re.compile(r"<!-- measured: ([a-z]+) -->")

# What stands at the head of a column, and how the names of its contestants begin.
COLUMNS = {
    "eager torch": ("torch",),
    "compiled torch": ("compiled",),
    "published code": ("published",),
    "other package": ("pytorch-cka",),
    "CKA grid": ("cka grid",),
    "others": ("",),
}
VECTORS = {"avx2": "AVX2", "avx512": "AVX\u2011512", "generic": "SSE"}
# What family and model of a processor, as the rows have them, are called.
PROCESSORS = {
    "AMD EPYC (family 25 model 1)": "Zen 3",
    "AMD EPYC (family 25 model 17)": "Zen 4",
    "AMD EPYC (family 26 model 2)": "Zen 5",
}


def number(value):
    """Return a number with three digits."""
    value = float(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def seconds(value):
    """Return a time in the unit that suits it."""
    value = float(value)
    scale, unit = next((s, u) for s, u in ((1, "s"), (1e-3, "ms"), (0, "µs")) if value >= s)
    return f"{number(value / (scale or 1e-6))} {unit}"


def megabytes(value):
    """Return bytes of 2^20 as MB, many of them as GB."""
    value = float(value)
    return f"{number(value / 1024)} GB" if value >= 1024 else f"{number(value)} MB"


def unbroken(cell):
    """Return a cell in which numbers and their units stay on one line; names stay as they are."""
    if cell.startswith("`"):
        return cell
    return re.sub(r"(?<=\d) (?=[a-zµA-Z(=])|(?<=[a-z]) (?== )|(?<==) ", "\u00a0", cell)


def table(head, rows):
    """Return a table, without the columns that are empty in all rows."""
    kept = [i for i, _ in enumerate(head) if any(row[i] for row in rows)]
    lines = [[head[i] for i in kept], ["---"] * len(kept)]
    lines += [[unbroken(row[i]).replace("|", "/") for i in kept] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def processor(row):
    """Return the processor and the instruction set that a row was measured with."""
    return f"{PROCESSORS.get(row['cpu'], row['cpu'])}, {VECTORS[row['isa']]}"


def family(label):
    """Return the family of a job; rows of the same job with memory kept belong to it too."""
    suite, job = bench_rows.job_of(label)
    return job.family if suite == "grids" else suite


def described(label):
    """Return what a job is given, from the job itself."""
    _, job = bench_rows.job_of(label)
    values = {field.name: getattr(job, field.name) for field in fields(job)}
    words = []
    for name, value in values.items():
        if name == "shape":
            words.append(" x ".join(f"{size:,}" for size in value))
        elif isinstance(value, int) and not isinstance(value, bool) and value:
            plural = name.endswith("s") and value > 1
            words.append(f"{value:,} {name}" if plural else f"{name} = {value:,}")
    return ", ".join(words) + (", memory kept" if label.endswith(bench_rows.KEPT) else "")


def newest(family_name):
    """Return the newest row of each contestant, by job, of one family, in the order of `bench`."""
    found = bench_rows.newest()
    return {job: rows for job, rows in found.items() if family(job) == family_name}


def column_of(contestant):
    """Return the column of a contestant, and what the cell calls it."""
    for column, beginnings in COLUMNS.items():
        for beginning in beginnings:
            if contestant.startswith(beginning):
                label = contestant.removeprefix(beginning).strip(" ,")
                return column, "" if column in ("published code", "CKA grid") else label
    raise AssertionError(contestant)  # the last column takes every name


def ratios(rows):
    """Return the cells of a job: by column, times over our time in the same run."""
    cells = {column: [] for column in COLUMNS}
    for contestant, row in rows.items():
        if contestant == "ours" or not row["times_ours"]:
            continue
        column, label = column_of(contestant)
        if row["isa"] != bench_rows.PURE and processor(row) != processor(rows["ours"]):
            label = f"{label}, {processor(row)}".strip(" ,")
        ratio = number(bench_rows.times_ours(row))
        cells[column].append(f"{ratio} ({label})" if label else ratio)
    return ["<br>".join(cells[column]) for column in COLUMNS]


def memory(rows):
    """Return our peak memory, and that of the contestant that takes most."""
    ours = megabytes(rows["ours"]["peak_mb"])
    others = [row for name, row in rows.items() if not name.startswith("ours")]
    if not others:
        return ours
    most = max(others, key=lambda row: float(row["peak_mb"]))
    return f"{ours}<br>{megabytes(most['peak_mb'])} ({most['contestant']})"


def family_table(name):
    """Return the table of a family of measures."""
    rows = []
    for job, found in newest(name).items():
        ours = found["ours"]
        time, floor = ours["median_s"], ours["over_floor"]
        rows.append(
            [
                f"`{job}`",
                described(job),
                f"{seconds(time)}, {processor(ours)}" if time else "",
                number(floor) if floor else "",
                *ratios(found),
                memory(found),
            ]
        )
    head = ["job", "input", "our time", "x floor", *COLUMNS, "peak memory"]
    return table(head, rows)


def without_a_compiler():
    """Return the table of the jobs that operations of torch computed."""
    slower = bench_rows.slower()
    rows = [
        [
            f"`{job}`",
            described(job),
            seconds(found["ours"]["median_s"]),
            number(slower[job]),
            ratios(found)[0],
            memory(found),
        ]
        for job, found in bench_rows.newest(pure=True).items()
        if job in slower
    ]
    return table(["job", "input", "time", "x kernels", "eager torch", "peak memory"], rows)


def quantities(name, columns):
    """Return a table of named numbers, the newest of each; `columns` are its columns and heads."""
    key = next(iter(columns))
    rows = {row[key]: row for row in bench_rows.read(name)}
    cells = [
        [row[column] if column in (key, "unit") else number(row[column]) for column in columns]
        for row in rows.values()
    ]
    return table(list(columns.values()), cells)


FORMS = ("kernel", "composed", "torch")  # of bench.gpu


def devices():
    """Return a table for each CUDA device that ran `bench.gpu`."""
    parts = []
    for path in sorted(bench_rows.RESULTS.glob("gpu-*.json")):
        about = json.loads(path.read_text())
        timed = [row for row in about["rows"] if "ms" in row]
        ours: dict[str, float] = {}
        for row in timed:
            if str(row["contestant"]).startswith("ours"):
                ours.setdefault(row["job"], row["ms"])
        rows = []
        for row in timed:
            floor = number(row["ms"] / row["floor_ms"]) if row.get("floor_ms") else ""
            ratio = number(row["ms"] / ours[row["job"]]) if row["job"] in ours else ""
            memory = megabytes(row["peak_bytes"] / 2**20) if "peak_bytes" in row else ""
            time = seconds(row["ms"] / 1e3)
            form = row["form"]
            rows.append([f"`{row['job']}`", row["contestant"], form, time, floor, ratio, memory])
        head = ["job", "contestant", "form", "time", "x floor", "x ours", "peak memory"]
        parts.append(f"{about['device']}, torch {about['torch']}:\n\n{table(head, rows)}")
        parts.append(decisions([row for row in about["rows"] if "kernel_stays" in row]))
    return "\n\n".join(parts)


def decisions(found):
    """Return a table of the kernels of a device: times of their forms, and whether they gain."""
    rows = [
        [
            f"`{row['job']}`",
            row["contestant"].removeprefix("decision, "),
            *(seconds(row[f"{form}_ms"] / 1e3) if row[f"{form}_ms"] else "" for form in FORMS),
            number(row["gain"]) if row["gain"] else "",
            "yes" if row["kernel_stays"] else "no",
        ]
        for row in found
    ]
    head = [
        "job",
        "contestant",
        "kernel",
        "operations of torch",
        "plain torch",
        "gain",
        "at least 1.5",
    ]
    return table(head, rows)


TABLES = {
    "report": lambda: quantities(
        "report",
        {
            "job": "page",
            "cells": "cells",
            "page_mb": "MB",
            "write_s": "s to write",
            "overview_s": "s to the overview",
            "open_s": "s to a grid",
            "profile_s": "s to a profile",
            "hover_ms": "ms a move of the mouse",
            "frame_ms": "ms a frame",
            "frames_late": "share of late frames",
            "browser_mb": "MB of the browser",
            "empty_mb": "MB of an empty browser",
        },
    ),
    "sweeps": lambda: quantities(
        "sweeps", {"quantity": "quantity", "value": "value", "unit": "unit"}
    ),
    "track": lambda: quantities(
        "track",
        {
            "job": "model and texts",
            "step_s": "s a training step",
            "track_s": "s a recorded step",
            "forward_s": "s the forward passes alone",
            "added": "recorded / training step",
            "times_forward": "recorded / forward",
        },
    ),
    "before": lambda: quantities(
        "before",
        {
            "job": "job",
            "ratio": "now / before",
            "quartile_1": "first quartile",
            "quartile_3": "third quartile",
            "before_s": "CPU s before",
            "scale": "share of rows and columns",
        },
    ),
    "pure": without_a_compiler,
    "gpu": devices,
}


def measured(name):
    """Return the table that a marker names; a sentence where nothing has been measured yet."""
    families = {family(label) for label in bench_rows.jobs()}
    if name not in TABLES and name not in families:
        raise ValueError(f"measured: wanted one of {sorted({*TABLES, *families})}, found {name!r}")
    made = TABLES[name]() if name in TABLES else family_table(name)
    return made if made.count("\n") > 1 else f"`bench/results` has no rows of {name} yet."


def insert(app, page, source):
    """Put the tables in place of the markers."""
    if MARKER.search(source[0]):
        source[0] = MARKER.sub(lambda found: measured(found[1]), source[0])
        for path in bench_rows.RESULTS.iterdir():
            app.env.note_dependency(str(path))


def setup(app):
    """Connect to Sphinx."""
    app.connect("source-read", insert)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
