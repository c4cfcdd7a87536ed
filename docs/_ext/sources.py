"""Links between names and their sources, in addition to sphinx.ext.viewcode.

viewcode links the source of a module back to descriptions, and takes all of them to be in one
module: for the file of `Task`, which is documented in ``simlab.tasks``, and of `TaskOptions`, which
is documented in ``simlab``, in one of the two. Here each description gets an address in every
module that viewcode may take for its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from operator import attrgetter
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.viewcode import OUTPUT_DIRNAME, viewcode_anchor

import simcore


def source_line(env: BuildEnvironment, functions: Sequence[str]) -> list[nodes.Node]:
    """Return a paragraph with links to the sources of functions of simcore.

    Where the reference is left out, there are no pages of sources, and there is no paragraph.
    """
    if not env.config.autosummary_generate:
        return []
    line = nodes.paragraph("", "Source code: ")
    for number, name in enumerate(functions):
        page = f"{OUTPUT_DIRNAME}/{getattr(simcore, name).__module__.replace('.', '/')}"
        line += nodes.Text(", " if number else "")
        line += nodes.literal("", name)
        line += nodes.Text(" ")
        line += viewcode_anchor(reftarget=page, refid=name, refdoc=env.docname)
    return [line]


def add_addresses(app: Sphinx, doctree: nodes.document) -> None:
    """Give each description its addresses in the module of the source and in the package."""
    signatures = [one for one in doctree.findall(addnodes.desc_signature) if one.get("module")]
    known = {address for signature in signatures for address in signature["ids"]}
    for signature in signatures:
        module, name = signature["module"], signature["fullname"]
        for other in (_source_of(module, name), module.partition(".")[0]):
            address = f"{other}.{name}"
            if other and address not in known:
                known.add(address)
                signature["ids"].append(address)


def _source_of(module: str, name: str) -> str | None:
    """Return the module in which an object is defined; None of an attribute without one."""
    try:
        described = attrgetter(name)(import_module(module))
    except (AttributeError, ModuleNotFoundError):  # an attribute of instances alone
        return None
    return getattr(described, "__module__", None)


def forget_compiled(app: Sphinx) -> Iterable[Any]:
    """Leave modules without a Python source out of viewcode's list of modules."""
    modules = getattr(app.env, "_viewcode_modules", {})
    for name in [name for name, entry in modules.items() if not entry]:
        del modules[name]
    return ()


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.setup_extension("sphinx.ext.viewcode")
    app.connect("doctree-read", add_addresses)
    app.connect("html-collect-pages", forget_compiled, priority=400)  # before viewcode
    return {"parallel_read_safe": True}
