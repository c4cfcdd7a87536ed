"""Similarity: measures between stored representations, localization scores and blocks.

* `catalogue`: the table of measures of `simcore grid`, their options and ranges of values.
* `grids`: `simlab.grid`, a measure between all layers, as rows of the results table.
* `layers`: where a grid is computed, with its layers and values there and back; bases of layers on
  disk, which many grids of a study read.
* `resampling`: intervals, p-values and calibrated values of grids.
* `localization`: `simlab.localize`, scores from joint grids of neuronsim and SVCCA.
* `blocks`: `simlab.blocks`, how block diagonal stored grids are, beside chance.
"""
