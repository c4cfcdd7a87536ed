"""Answers to whole questions about models that are named: each runs several steps of simlab.

* `subjects`: models, stored layers and texts by name (a file, a task, texts of Python, or a sample
  that ships) become representation folders with equal rows.
* `compare`: grids, matches of layers as text, figures and the page for all pairs of several models.
* `check`: whether two models are the same, layer by layer, by the noise of the first.
"""
