"""README and the pages for a start, tried as a newcomer does: with a hub, then without it.

The blocks are read from the pages and run in their order. Commands of one page share a process with
its Python, because most of a short command is imports; `test_snippets` runs some in a shell. Models
of the hub are offline ones on a hub on the loopback interface. Tasks have fewer rows, and sweeps
fewer seeds, than on the page. Each page has a folder of its own.
"""

import importlib.util
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from simlab import load_model
from simlab.models.sources import resolve
from support.hub import HUB, MINILM
from support.hubserver import Hub
from support.lab.hubs import environment, publish
from support.lab.tinymodels import save_tiny_model
from support.pages import FEW, ROOT, commands, snippets, with_few_rows

NAMES = ("google-bert/bert-base-uncased", "google/multiberts-seed_0")
START = ROOT / "docs/start"
WITH_HUB = (ROOT / "README.md", START / "huggingface.md")
WITHOUT = [START / name for name in ("module.md", "arrays.md", "plot.md", "report.md", "sweep.md")]
PYTHON, SHELL, SWEEP = ("python", "py"), ("sh",), ("toml",)
_ON_RT = re.compile(r"^(simcore (?:extract|finetune) \S+ rt)\b", re.MULTILINE)
_OF_TWO = re.compile(r"^(simcore (?:compare|check) \S+ \S+)", re.MULTILINE)
_SEEDS = re.compile(r"seeds = \"1\.\.\d+\"")
_LIMIT = re.compile(r"--limit \d+")
_FILE = re.compile(r"# (\S+\.toml)\n")
# A step of Python has names of its own; a step of the shell ends with the first command that fails.
# What is checked on these pages has another model as its second one: its exit code is 1.
_RUN = """
import json, os, sys
for folder, kind, text in json.load(sys.stdin):
    os.chdir(folder)
    if kind == "python":
        exec(text, {"__name__": "__main__"})
    else:
        from simlab import cli
        for _, *arguments in text:
            if (code := cli.run(arguments)) != (arguments[0] == "check"):
                sys.exit(code or 3)
"""


def steps(page):
    """Return what a newcomer runs of a page, in order: a language and a text each.

    Blocks of Python that follow one another are one program. Left out are installations, packages
    that are not installed here, and parts of sweep files.
    """
    found = snippets(page, *PYTHON, *SHELL, *SWEEP)
    for python, blocks in itertools.groupby(found, lambda one: one.language in PYTHON):
        if python:
            yield "python", "\n".join(block.text for block in blocks)
            continue
        for block in blocks:
            named = _FILE.match(block.text)
            if block.language in SWEEP and named is not None:
                yield named[1], _SEEDS.sub('seeds = "1..2"', with_few_rows(block.text))
            elif block.language in SHELL and runs_here(block.text):
                sizes = " ".join(f"--{name}-size {rows}" for name, rows in FEW.items())
                text = _OF_TWO.sub(r"\1 --limit 8", _LIMIT.sub("", block.text))
                yield "sh", _ON_RT.sub(rf"\1 {sizes}", text)


def runs_here(text):
    """Return whether all commands of a block are of simcore, on models that can be loaded."""
    words = list(commands(text))
    timm = any(word.startswith("timm:") for command in words for word in command)
    known = not timm or importlib.util.find_spec("timm") is not None
    return known and {command[0] for command in words} == {"simcore"}


def test_the_pages_have_these_steps():
    kinds = {page.stem: [kind for kind, _ in steps(page)] for page in (*WITH_HUB, *WITHOUT)}
    timm = ["sh"] if importlib.util.find_spec("timm") else []
    assert kinds == {
        "README": ["sh", "sh", "python"],
        "huggingface": ["python", "sh", "sh", "python"],
        "module": ["python", *timm],
        "arrays": ["python", "sh"],
        "plot": ["python"],
        "report": ["sh", "python"],
        "sweep": ["study.toml", "sh", "python"],
    }
    assert sum("--train-size 24" in text for _, text in steps(START / "huggingface.md")) == 2
    assert sorted(page.name for page in START.glob("*.md")) == sorted(
        ["index.md", *(page.name for page in (*WITH_HUB, *WITHOUT) if page.parent == START)]
    )


def write_variants(folder):
    """Write the models of README that a reader has: one with noise, and one with swapped heads."""
    for name in ("noisy", "my-port"):
        model, tokenizer = load_model("minilm")
        layer = model.encoder.layer[3]
        width = model.config.hidden_size // model.config.num_attention_heads
        with torch.no_grad():
            if name == "noisy":
                noise = torch.Generator().manual_seed(0)
                for weight in layer.parameters():
                    weight += 0.02 * torch.randn(weight.shape, generator=noise)
            else:
                for part in ("query", "key", "value"):
                    heads = getattr(layer.attention.self, part).weight[: 2 * width]
                    heads.copy_(heads.roll(width, 0))
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


@pytest.fixture
def newcomer(tmp_path):
    """Run the steps of a page in a folder, with a cache that begins empty, beside a hub."""
    hub = Hub(tmp_path / "hub")
    for name in NAMES:
        model = HUB[name]
        folder = (
            resolve(MINILM).path if model == MINILM else save_tiny_model(tmp_path / model, model)
        )
        publish(hub, name, Path(folder))

    def run(pages, work, names=("",), **offline):
        env = environment(hub, tmp_path / "home", MPLBACKEND="agg")
        chosen = []
        for page in pages:
            folder = tmp_path / work / page.stem
            folder.mkdir(parents=True)
            if "my-port" in page.read_text():
                write_variants(folder)
            for kind, text in steps(page):
                if kind.endswith(".toml"):
                    (folder / kind).write_text(text)
                elif any(name in text for name in names):
                    step = text if kind == "python" else list(commands(text))
                    chosen.append((str(folder), kind, step))
        for setting, some in itertools.groupby(chosen, lambda step: offline.get(step[1], "0")):
            done = subprocess.run(
                [sys.executable, "-c", _RUN],
                input=json.dumps(list(some)),
                cwd=tmp_path,
                env={**env, "HF_HUB_OFFLINE": setting},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{pages}\n{done.stdout}{done.stderr}"

    return hub, run


@pytest.mark.slow
@pytest.mark.assets
def test_the_pages_of_the_hub_with_it_and_without(newcomer):
    hub, run = newcomer
    with hub.running():
        run(WITH_HUB, "work")
        assert len(hub.asked("GET", "model.safetensors")) == len(NAMES)
    # The hub has stopped. Commands find that out; `from_pretrained` would wait for it.
    run(WITH_HUB, "again", NAMES, python="1", sh="0")


@pytest.mark.slow
@pytest.mark.assets
def test_the_other_pages_ask_no_hub(newcomer):
    hub, run = newcomer
    with hub.running():
        run(WITHOUT, "work")
    assert hub.log == []
