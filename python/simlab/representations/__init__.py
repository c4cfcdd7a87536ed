"""Representations: from a model and a task to the rows of every layer on disk.

* `extract`: `simlab.extract`.
* `passes`: the options of an extraction; a model over all examples, written batch by batch; rows
  that cannot be right.
* `recorded`: the rows of any modules, by `simcore.record`.
* `kinds`: kinds of representation: the rows of an example, the tokens that each row pools, and the
  words of a text.
* `imported`: `simlab.import_representations`; `array_files`: the arrays of files.
* `folder`: reading and writing representation folders; `simlab.load_representations`.
"""
