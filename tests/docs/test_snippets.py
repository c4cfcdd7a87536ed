"""Every snippet of README and the documentation works as it stands there.

Python runs: the blocks of a page one after the other, in one namespace and in an empty folder.
Commands of `simcore` are parsed by the command itself, and those of `RUN` are run. Sweep files are
read by the reader of sweep files. Names of models of the hub stand for offline models (`HUB`).
"""

import doctest
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import simcore
from simlab import cli
from simlab.sweeps.spec import make_spec
from support.hub import fill_cache
from support.lab.tinymodels import save_tiny_model, write_reviews
from support.pages import ROOT, SHELLS, commands, pages, snippets

# Pages whose commands are run too, among their blocks of Python, in the order of the page.
RUN = ("docs/start/arrays.md",)
# Pages that run whole models on many texts: `test_first_pages` runs them, with their commands.
ELSEWHERE = ("docs/start/huggingface.md", "docs/start/report.md")
# Pages that fine-tune or run whole models.
DEEP = ("docs/experiments/finetune.md", "docs/experiments/index.md")
# Pages that must say where every name comes from; the others may use the names of `given`.
COMPLETE = ("README.md", "docs/start", "docs/guides/recording.md")
# Pages whose first lines need what earlier pages made.
PREPARED = ("docs/guides/report.md", "docs/results/papers.md")
PLAIN = re.compile(r"(simcore ([^|&;<>$`*\\\n]|\\\n)*\n)+")  # needs no shell
MAKE = re.compile(r"^([a-z-]+):", re.MULTILINE)


def identifier(page):
    return str(page.relative_to(ROOT))


def with_blocks(*languages, deep=()):
    """Return pages that have blocks in one of the languages."""
    return [
        pytest.param(
            page, id=identifier(page), marks=[pytest.mark.deep] if identifier(page) in deep else []
        )
        for page in pages()
        if snippets(page, *languages)
    ]


def given():
    """Return what pages say in words: some layers, batches, and two layers to map or compare."""
    generator = torch.Generator().manual_seed(0)

    def rows(*shape):
        return torch.randn(*shape, generator=generator)

    base = rows(120, 12)
    layers, layers_a, layers_b = (
        [base @ rows(12, width) + rows(120, width) for width in (8, 12, 12)] for _ in range(3)
    )
    teacher, student = rows(64, 8), rows(64, 4).requires_grad_()
    x, y, x_new, y_new = base[:90], layers[1][:90], base[90:], layers[1][90:]
    xs, ys = list(rows(6, 100, 8)), list(rows(6, 100, 8))
    names = {
        "layers": layers,
        "layers_a": layers_a,
        "layers_b": layers_b,
        "x": x,
        "y": y,
        "xs": xs,
        "ys": ys,
        "loader": list(rows(4, 30, 1, 8, 8)),
    }
    return {**names, "x_new": x_new, "y_new": y_new, "teacher": teacher, "student": student}


@pytest.fixture(scope="session")
def hub_cache(tmp_path_factory):
    """A cache of the hub's client with an offline model for every name that a page has."""
    cache = tmp_path_factory.mktemp("hub")
    fill_cache(cache, tmp_path_factory.mktemp("models"))
    return cache


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A folder ``runs`` with the words of a tiny model, and a grid of them."""
    from simlab import TaskOptions, extract, grid

    folder = tmp_path_factory.mktemp("prepared")
    model = save_tiny_model(folder / "bert")
    columns = TaskOptions(text_column="body", label_column="verdict")
    reviews = write_reviews(folder / "reviews.csv")
    extract(model, reviews, folder / "runs/words", kind="word-last", task_options=columns)
    grid(folder / "runs/words", folder / "runs/results/words.parquet")
    return folder / "runs"


@pytest.fixture
def reader(tmp_path, monkeypatch, hub_cache):
    """The circumstances of somebody who tries a page: an empty folder, and the hub's models."""
    from huggingface_hub import constants

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub_cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for name, value in {"HF_HUB_CACHE": str(hub_cache), "HF_HUB_OFFLINE": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MPLBACKEND", "agg")
    binaries = tmp_path / ".bin"
    binaries.mkdir()
    shim = binaries / "simcore"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m simlab.cli "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    found = [str(ROOT), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, found)))
    return tmp_path


def execute(page, scope):
    """Run the blocks of Python of a page, and its commands if it is one of `RUN`."""
    shells = SHELLS if identifier(page) in RUN else ()
    for snippet in snippets(page, "python", "toml", *shells):
        if snippet.language == "python":
            exec(compile(snippet.text, str(snippet), "exec"), scope)
        elif snippet.language == "toml":
            name = re.match(r"# (\S+\.toml)\n", snippet.text)
            if name:
                Path(name[1]).write_text(snippet.text)
        elif PLAIN.fullmatch(snippet.text):
            for words in commands(snippet.text):
                assert cli.run(words[1:]) == 0, f"{snippet}: {words}"
        else:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", snippet.text],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{snippet}\n{done.stdout}{done.stderr}"


RUNNING = [one for one in with_blocks("python", deep=DEEP) if one.id not in ELSEWHERE]


@pytest.mark.parametrize("page", RUNNING)
def test_python(page, reader, request):
    if identifier(page) in PREPARED:
        shutil.copytree(request.getfixturevalue("runs"), "runs")
    complete = any(identifier(page).startswith(place) for place in COMPLETE)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        execute(page, {"__name__": "__main__", **({} if complete else given())})


def test_the_pages_of_commands_that_run_exist():
    names = {identifier(page) for page in pages()}
    assert {*RUN, *DEEP, *PREPARED, *ELSEWHERE} <= names


def parse(words):
    """Let the command of `simcore` read its options; nothing runs."""
    import typer

    group = typer.main.get_command(cli.make_app())
    if len(words) < 2 or words[1] == "--help":
        return
    name, *options = words[1:]
    assert name in group.commands, f"no command {name}"
    if "--help" in options:
        return
    command = group.commands[name]
    with group.make_context("simcore", [name], resilient_parsing=True) as parent:
        command.make_context(name, options, parent=parent)


def check_command(words):
    """Check a simple command: its options, its target, or the packages that it names."""
    program, *arguments = words
    if program == "simcore":
        parse(words)
    elif program == "make":
        targets = MAKE.findall((ROOT / "Makefile").read_text())
        named = [word for word in arguments if "=" not in word and not word.startswith("-")]
        assert set(named) <= set(targets), f"make {named}"
    elif program in ("python", "python3") and arguments[:1] == ["-m"]:
        assert importlib.util.find_spec(arguments[1]), f"no module {arguments[1]}"
    elif program == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = re.findall(r"\[([\w,]+)\]", " ".join(arguments))
        named = {extra for group in extras for extra in group.split(",")}
        assert named <= project["optional-dependencies"].keys()
    elif program in ("tools/gpu_check.sh", ".ci/run"):
        assert (ROOT / program).is_file()


@pytest.mark.parametrize("page", with_blocks(*SHELLS))
def test_commands(page):
    for snippet in snippets(page, *SHELLS):
        for words in commands(snippet.text):
            try:
                check_command(words)
            except Exception as error:
                message = getattr(error, "message", str(error))
                pytest.fail(f"{snippet}: {' '.join(words)}: {message}")


@pytest.mark.parametrize("page", with_blocks("toml"))
def test_sweep_files(page):
    for snippet in snippets(page, "toml"):
        content = tomllib.loads(snippet.text)
        if "project" not in content and "tool" not in content:
            make_spec({"models": ["minilm"], "tasks": ["rt"], **content}, str(snippet))


@pytest.mark.parametrize("name", ["compare", "record"])
def test_docstrings(name):
    (example,) = doctest.DocTestFinder(recurse=False).find(getattr(simcore, name), name, globs={})
    report = []
    result = doctest.DocTestRunner().run(example, out=report.append)
    assert result.failed == 0, "".join(report)
    assert result.attempted > 0


def test_the_words_of_commands():
    block = "A=1 simcore skip x \\\n  --out y.parquet  # why\nfor s in 1 2; do simcore a $s; done\n"
    assert list(commands(block)) == [
        ["simcore", "skip", "x", "--out", "y.parquet"],
        ["for", "s", "in", "1", "2"],
        ["simcore", "a", "1"],
    ]
    assert list(commands("printf '%s; do\\n' 'a b' > file")) == [["printf", "%s; do\\n", "a b"]]
