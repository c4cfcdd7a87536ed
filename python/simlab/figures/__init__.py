"""Figures drawn from the results table alone; this room computes no results.

* `draw`: `simlab.plot`, which writes every figure that a table has rows for.
* `table`: every value of a results table once, and the rows of each kind of figure; the measure of
  rows in words, and its colours; which rows are seeds of one model, and the names and order of
  models.
* `style`: colours, curves, cells of grids, ticks and labels that all figures share; models below
  each other and tasks side by side, or panels side by side.
* `grids`: heatmaps of one measure, one for every pair of models, and which of them share a figure.
* `joint`: several models in one heatmap for every measure, and their localization scores.
* `curves`: the metric with layer l fed straight to a head, without every span of layers, and for
  each way of freezing, with parameters and time; similarities by step of training.
* `alignment`: maps between layers, injected states, and nuclear norms of layers.
"""
