"""A page for each grid of simcore, from the records of the measures.

``{grids} cka cca`` lists the grids of these modules with links to their pages. autosummary makes
pages of the names that stand in the sources, where these names do not stand: it is given a list.
"""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext.autosummary.generate import generate_autosummary_docs
from sphinx.util.docutils import SphinxDirective

from simcore._measures import MODULES

PLACE = "reference/api/generated"


def listed(names: list[str], folder: str) -> str:
    """Return the directive that lists these names of simcore."""
    lines = "\n".join(f"   {name}" for name in names)
    return f".. currentmodule:: simcore\n\n.. autosummary::\n   :toctree: {folder}\n\n{lines}\n"


class Grids(SphinxDirective):
    """The list of the grids of some modules."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return the list."""
        modules = self.arguments[0].split()
        names = [name for module in modules for name, own in MODULES.items() if own == module]
        return self.parse_text_to_nodes(f"```{{eval-rst}}\n{listed(names, 'generated')}```\n")


def make_pages(app: Sphinx) -> None:
    """Write the pages of all grids, unless the reference is left out."""
    if app.config.autosummary_generate:
        source = Path(app.doctreedir) / "grids.rst"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(listed(list(MODULES), "."))
        generate_autosummary_docs(
            [str(source)], output_dir=Path(app.srcdir) / PLACE, suffix=".rst", app=app
        )


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.add_directive("grids", Grids)
    app.connect("builder-inited", make_pages)
    return {"parallel_read_safe": True}
