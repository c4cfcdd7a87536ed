"""Answers to whole questions about models that are named: each runs several steps of simlab.

* `subjects`: models, stored layers and texts by name (a file, a task, texts of Python, or a sample
  that ships) become representation folders with equal rows.
* `matches`: which layers of two models match, read from the rows of a grid, as text.
* `compare`: grids, figures and the page for all pairs of several models.
* `runs`: the states of every token: of a model under many circumstances, or of a file.
* `check`: whether two models are the same, layer by layer, by the noise of the first.
"""
