"""The program and the styles of the page: their size, what is used, and modules run by node."""

import json
import re
import shutil
import subprocess
from importlib import resources

import numpy as np
import pytest

from support.lab.browsers import NO_TOOLS, TOOLS, tool

MOST_BYTES = 90_000  # of the program
FOLDER = resources.files("simlab.report") / "page"


@pytest.fixture
def node():
    found = shutil.which("node")
    if not found:
        pytest.skip("no node on this machine")
    return found


def test_every_style_is_used():
    """Classes and names of elements in the styles stand in the template or in a module."""
    style = re.sub(r"/\*.*?\*/|\{[^{}]*\}", " ", (FOLDER / "page.css").read_text(), flags=re.S)
    names = set(re.findall(r"[.#]([a-z][\w-]*)", style))
    modules = [file for file in FOLDER.iterdir() if file.suffix in (".js", ".j2")]
    code = "".join(file.read_text() for file in modules if file.name != "main.min.js")
    used = {word for text in re.findall(r'"([^"\n]*)"', code) for word in text.split()}
    assert len(names) > 50
    assert names - used == set()


def run_module(node, module, script):
    """Return what a script prints as JSON that imports a module of the page."""
    address = json.dumps((FOLDER / module).as_uri())
    done = subprocess.run(
        [node, "--input-type=module", "-"],
        input=f"import * as module from {address};\n{script}",
        text=True, capture_output=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_a_large_table_is_made_in_parts_between_which_the_page_goes_on(node):
    script = """
      let turns = 0, ended = false;
      const turn = () => { turns++; if (!ended) setTimeout(turn); };
      setTimeout(turn);
      const rows = Array.from({ length: 20000 }, (_, at) => [at, 'x"']);
      const parts = await module.csv(["a", "b"], rows);
      ended = true;
      console.log(JSON.stringify([turns, parts]));"""
    turns, parts = run_module(node, "csv.js", script)
    lines = "".join(parts).splitlines()
    assert turns > 3
    assert len(lines) == 20_001
    assert (lines[0], lines[1], lines[-1]) == ("a,b", '0,"x"""', '19999,"x"""')


def test_ink_can_be_read_on_every_colour(node):
    """The contrast of text with the colour below it, as WCAG defines it."""
    script = """const { MAPS, inkOn, lookup } = module;
    const found = [...MAPS, "difference"].map((name) => [...Array(256).keys()].map((step) =>
      [...lookup(name).subarray(step * 3, step * 3 + 3), inkOn(lookup(name), step) === "#000"]));
    console.log(JSON.stringify(found.flat()));"""
    table = np.array(run_module(node, "colours.js", script), dtype=float)
    part = table[:, :3] / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    light = linear @ [0.2126, 0.7152, 0.0722]
    contrast = np.where(table[:, 3] == 1, (light + 0.05) / 0.05, 1.05 / (light + 0.05))
    assert contrast.min() > 4.5


def test_the_program_is_small_and_made_of_its_modules(tmp_path):
    """``make page`` was run after the last change of a module."""
    program = FOLDER / "main.min.js"
    assert program.stat().st_size < MOST_BYTES
    esbuild = tool(".bin/esbuild")
    if not esbuild:
        pytest.skip(NO_TOOLS)
    package = json.loads((TOOLS.parent / "package.json").read_text())
    _, *options = package["scripts"]["build"].split()
    made = subprocess.run([esbuild, *options], cwd=TOOLS.parent, capture_output=True, check=True)
    assert made.stdout == program.read_bytes()
