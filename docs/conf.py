# The documentation site: `make docs` builds it into build/docs, with warnings as errors.
#
# The environment variable SIMCORE_DOCS makes builds quicker:
#
#     SIMCORE_DOCS=unrun   the examples of the gallery and the notebooks are shown, but not run
#     SIMCORE_DOCS=quick   nor are there pages for single names in the API reference
#
#     SIMCORE_DOCS=quick python -m sphinx -W --keep-going -b html docs build/docs-quick
#
# Nothing is fetched, neither while the site is built nor by the browser that shows it.
"""Configuration of Sphinx."""

import os
import shutil
import sys
import tomllib
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
# Our extensions; the packages of this checkout; `bench`, whose results are tables of the site.
sys.path[:0] = [str(path) for path in (DOCS / "_ext", ROOT / "python", ROOT)]
os.environ.setdefault("HF_HUB_OFFLINE", "1")

QUICK = os.environ.get("SIMCORE_DOCS") == "quick"
UNRUN = QUICK or os.environ.get("SIMCORE_DOCS") == "unrun"
EXAMPLES = ROOT / "examples" / "gallery"
NOTEBOOKS = ROOT / "examples" / "notebooks"

project = "simcore"
author = "The simcore authors"
copyright = author
release = version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

extensions = [
    "command_line",
    "family_table",
    "grid_pages",
    "mathml",
    "measured",
    "measure_pages",
    "myst_nb",
    "numpydoc",
    "option_tables",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sources",
    "sphinx_copybutton",
    "sphinx_design",
    *(["sphinx_gallery.gen_gallery"] if EXAMPLES.is_dir() else []),
]
exclude_patterns = [
    "_*",
    "gallery/*.ipynb",  # sphinx-gallery writes a notebook beside each page, to be downloaded
    *(["reference/api/**"] if QUICK else []),
    *([] if EXAMPLES.is_dir() else ["gallery/**"]),
]
# The lists of pages name what a quick build leaves out.
suppress_warnings = ["toc.excluded"] if QUICK else []

# --- pages ------------------------------------------------------------------------

myst_enable_extensions = [
    *("attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath", "fieldlist"),
    "html_image",  # <img src=...> is a picture as any other
]
myst_heading_anchors = 3
smartquotes = False  # options begin with two hyphens, not with a dash
myst_update_mathjax = False
html_math_renderer = "mathml"  # docs/_ext/mathml.py

# --- the API reference ------------------------------------------------------------

default_role = "py:obj"  # a link where the name is known, code where it is not
autosummary_generate = not QUICK
autosummary_filename_map = {"simcore.Neighbours": "simcore.Neighbours-class"}
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88  # longer ones have a line for each parameter
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # those of other packages are no reStructuredText
numpydoc_show_class_members = False  # autodoc lists them

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# --- the gallery and the notebooks ------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": [str(EXAMPLES)],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"\.py$",  # all of them are run
    "plot_gallery": not UNRUN,
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 60,
    "remove_config_comments": True,
}
nb_execution_mode = "off" if UNRUN else "cache"
nb_execution_cache_path = str(ROOT / "build" / "docs-notebooks")
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds a cell, on machines that do other work too
nb_output_stderr = "remove"  # bars, and notes about the terminal
nb_ipywidgets_js = {}  # they would come from other hosts

# --- appearance -------------------------------------------------------------------

templates_path = ["_templates"]
html_theme = "pydata_sphinx_theme"
html_title = "simcore"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "logo": {"text": "simcore"},
    "show_prev_next": True,
    "header_links_before_dropdown": 6,
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button-field"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "primary_sidebar_end": [],
    "show_toc_level": 2,
}
html_sidebars = {page: [] for page in ("index", "performance")}  # they are in no section


def copy_notebooks(app):
    """Copy the notebooks of the examples beside their page, those that have changed."""
    for source in sorted(NOTEBOOKS.glob("*.ipynb")):
        target = DOCS / "notebooks" / source.name
        target.parent.mkdir(exist_ok=True)
        if not target.exists() or target.read_bytes() != source.read_bytes():
            shutil.copyfile(source, target)


def setup(app):
    """Connect to Sphinx; its extensions are set up already."""
    app.connect("builder-inited", copy_notebooks)
