"""An argument in a message: named as data, and spelled for Python, the command and a sweep file."""

import ast
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import simlab
from simlab.errors import Argument, UserError, argument, spelled, spelling
from simlab.experiments.truncate import TruncationOptions
from simlab.models.heads import HeadRecipe
from simlab.steps.words import as_key, as_option, key_and_rest

PACKAGE = Path(simlab.__file__).parent
ERROR = UserError(f"{argument('head_warmup', 0.5)}: wanted less, or another {argument('out')}")


def test_an_argument_is_data_of_the_error():
    assert ERROR.parts == (
        *(Argument("head_warmup", 0.5), ": wanted less, or another ", Argument("out")),
    )
    assert pickle.loads(pickle.dumps(ERROR)).parts == ERROR.parts


def test_each_place_has_its_spelling():
    assert str(ERROR) == "head_warmup=0.5: wanted less, or another out"
    with spelling(as_option("truncate")):
        assert str(ERROR) == "--head-warmup 0.5: wanted less, or another --out"
    assert str(ERROR) == "head_warmup=0.5: wanted less, or another out"
    assert spelled(ERROR.message, as_key) == "head_warmup = 0.5: wanted less, or another out"
    assert key_and_rest(ERROR) == ("head_warmup = 0.5", "wanted less, or another out")


@pytest.mark.parametrize("value", ["a: b", "it's", "\x02", 3, None, ["a", "b"], Path("a b")])
def test_a_value_comes_through(value):
    error = UserError(f"{argument('name', value)}: wanted another")
    shown = str(value) if isinstance(value, Path) else value
    assert str(error) == f"name={shown!r}: wanted another"
    assert key_and_rest(error) == (f"name = {shown!r}", "wanted another")


def test_switches_and_lists_have_options_of_their_own():
    message = f"{argument('special_tokens', False)} {argument('overwrite', True)}"
    assert spelled(message, as_option("extract")) == "--no-special-tokens --overwrite"
    assert spelled(argument("methods", "inn"), as_option("inject")) == "--method inn"
    assert spelled(argument("overwrite", True), as_key) == "overwrite = true"


def test_a_sweep_has_options_and_the_rest_are_keys_of_its_file():
    message = f"{argument('train_size', 9)}: wanted less, or {argument('retry_failed', True)}"
    assert spelled(message, as_option("sweep")) == "train_size = 9: wanted less, or --retry-failed"


def test_an_argument_of_another_step_has_the_spelling_of_that_step():
    advice = argument("modules", of="extract")
    assert str(UserError(advice)) == "`extract(modules=...)`"
    assert spelled(advice, as_option("truncate")) == "`simcore extract --module`"
    number = argument("permutations", 200, of="grid")
    assert str(UserError(number)) == "`grid(permutations=200)`"
    assert spelled(number, as_key) == "`simcore grid --permutations 200`"
    assert spelled(argument("joint", True, of="grid"), as_key) == "`simcore grid --joint`"


def test_a_message_without_an_argument_names_no_key():
    assert key_and_rest(UserError("model x: wanted a folder")) == ("", "model x: wanted a folder")
    assert key_and_rest(UserError("")) == ("", "")


def test_a_wrong_recipe_of_heads_is_named_in_python():
    options = TruncationOptions(recipe=HeadRecipe(patience=0))
    with pytest.raises(UserError, match=r"^head_patience: wanted more than 0, found 0$"):
        options.check()


def test_the_command_spells_options():
    done = subprocess.run(
        [sys.executable, "-m", "simlab.cli", "truncate", "x", "rt", "--out", "x", "--mode", "no"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: --mode no: wanted one of untuned, tuned, tuned-orig")


def test_no_message_names_an_option():
    nodes = [
        (file.name, node)
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Raise)
    ]
    assert nodes
    for name, node in nodes:
        texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
        assert not [t for t in texts if re.search(r"--\w", str(t))], (name, node.lineno)


def test_a_thread_has_a_spelling_of_its_own():
    with ThreadPoolExecutor(1) as pool, spelling(as_option("truncate")):
        assert pool.submit(str, ERROR).result() == "head_warmup=0.5: wanted less, or another out"
        assert str(ERROR) == "--head-warmup 0.5: wanted less, or another --out"
