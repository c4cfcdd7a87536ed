"""The report: one self-contained page that shows what a results table holds.

The page computes nothing that is not in the results, but orders of rows and statistics over seeds.

* `write`: `simlab.write_report`, which writes the page, with the figures that are no grids as SVG;
  jobs and sweeps, read from the records that jobs leave beside their results.
* `gather`: the table as settings, grids, axes, and values that belong to single layers.
* `trainings`: every layer by step of a training, over seeds.
* `planes`: the values of grids as compressed text, and orders of layers by hierarchical clustering.
* `page`: not a module, but the template, the styles and the scripts of the page.
"""
