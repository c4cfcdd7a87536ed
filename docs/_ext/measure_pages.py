"""Directives of the pages of the measures: what is computed or measured is never typed.

``{invariances}`` draws what the measures of the page ignore, ``{cost}`` tables what they take and
links to their sources, as ``{sources}`` alone does, and ``{measure-table}`` is the table of all
measures. Arguments of the first three name a page.
``{device-table}`` says what runs on a GPU; ``{command-measures}`` and ``{command-options}`` are the
tables of `simcore grid`.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import ClassVar

from docutils import nodes
from dot_panels import panels
from measure_invariances import CHANGES, computed
from measure_tables import all_measures, command_measures, command_options, costs
from measure_variants import of_page
from sources import source_line
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from simcore._ops import devices

CAPTION = (
    "Values of a fixed layer X with T(X), for {count} changes T, and with an independent layer. "
    "The vertical line is X with itself. A filled dot: the measure ignores the change, also beside "
    "any other layer. A ring: it does not."
)
NUMBERS = {5: "five", 9: "nine"}


class Invariances(SphinxDirective):
    """The picture of the measures of a page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the picture, and its words for writers without pictures."""
        variants = of_page(self.arguments[0])
        drawn = [panel for variant in variants for panel in panels(variant, computed(variant))]
        if self.env.app.builder.format != "html":
            return [nodes.paragraph(text=" ".join(panel.words() for panel in drawn))]
        count = NUMBERS[len(CHANGES[variants[0].kind])]
        pictures = "".join(panel.svg() for panel in drawn)
        html = (
            f'<figure class="invariances"><div class="panels">{pictures}</div>'
            f"<figcaption>{escape(CAPTION.format(count=count))}</figcaption></figure>"
        )
        return [nodes.raw("", html, format="html")]


class Sources(SphinxDirective):
    """Links to the sources of the functions of a page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the links."""
        functions = dict.fromkeys(variant.known.function for variant in of_page(self.arguments[0]))
        return source_line(self.env, [*functions])


class Cost(Sources):
    """The table of what the measures of a page take, and links to their sources."""

    def run(self) -> list[nodes.Node]:
        """Return the table, from the rows of bench and of the study, and links to the sources."""
        return self.parse_text_to_nodes(costs(self.arguments[0])) + super().run()


class MeasureTable(SphinxDirective):
    """The table of all measures by what they ignore, by cost, and by the study's result."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        return [
            nodes.container("", *self.parse_text_to_nodes(all_measures()), classes=["measures"])
        ]


class _Table(SphinxDirective):
    """A table that a function writes as Markdown."""

    table: ClassVar[Callable[[], str]]

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        return self.parse_text_to_nodes(type(self).table())


class DeviceTable(_Table):
    """The table of public functions by what computes them on each device."""

    table = staticmethod(devices.markdown)


class CommandMeasures(_Table):
    """The table of the measures of `simcore grid`."""

    table = staticmethod(command_measures)


class CommandOptions(_Table):
    """The table of the options of these measures."""

    table = staticmethod(command_options)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives and the style of the pictures."""
    app.add_directive("invariances", Invariances)
    app.add_directive("cost", Cost)
    app.add_directive("sources", Sources)
    app.add_directive("measure-table", MeasureTable)
    app.add_directive("device-table", DeviceTable)
    app.add_directive("command-measures", CommandMeasures)
    app.add_directive("command-options", CommandOptions)
    app.add_css_file("measures.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
