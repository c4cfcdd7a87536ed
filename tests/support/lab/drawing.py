"""Tables as figures take them, and single figures, for tests."""

from simlab.figures.grids import Sheet, draw_sheet, panels_of
from simlab.figures.joint import draw_joint, joint_grids
from simlab.figures.table import complete
from simlab.results.results import to_frame


def drawable(rows):
    """Return `rows` as a table with the columns that figures need."""
    return complete(to_frame(rows))


def grids_figure(table, blocks=None):
    """Return a figure of all grids of two models in a table of one measure."""
    sheet = Sheet(panels_of(complete(table)))
    return draw_sheet(sheet, None if blocks is None else complete(blocks))


def joint_figure(table, localization):
    """Return a figure of all joint grids in a table, and of localization scores."""
    return draw_joint(joint_grids(complete(table)), complete(localization))
