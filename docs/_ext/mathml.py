"""Formulas as MathML, written by docutils while the site is built: browsers need no script.

docutils knows a subset of LaTeX. A formula outside it is a warning that names the formula, so that
`make docs` fails.
"""

from docutils import nodes
from docutils.utils.math import MathError, unichar2tex
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

logger = logging.getLogger(__name__)


def converted(node, block):
    """Return a formula as MathML; as LaTeX, with a warning, where docutils does not know it."""
    latex = node.astext()
    try:
        return tex2mathml(latex.translate(unichar2tex.uni2tex_table), as_block=block)
    except MathError as error:
        logger.warning("formula %r: %s", latex, error, location=node)
        return None


def visit_inline(writer, node):
    """Write a formula of a sentence."""
    math = converted(node, block=False)
    writer.body.append(math or f"<code>{writer.encode(node.astext())}</code>")
    raise nodes.SkipNode


def visit_block(writer, node):
    """Write a formula of its own line, in a box that scrolls where the screen is narrow."""
    writer.body.append(writer.starttag(node, "div", CLASS="formula"))
    if node["number"]:
        writer.body.append(f'<span class="eqno">({get_node_equation_number(writer, node)})')
        writer.add_permalink_ref(node, "Link to this equation")
        writer.body.append("</span>")
    math = converted(node, block=True)
    writer.body.append(math or f"<pre>{writer.encode(node.astext())}</pre>")
    writer.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app):
    """Register the renderer as ``html_math_renderer = "mathml"``."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
