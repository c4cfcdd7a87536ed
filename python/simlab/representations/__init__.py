"""Representations: from a model and a task to the rows of every layer on disk.

* `extract`: `simlab.extract`; one forward pass, written batch by batch.
* `kinds`: which rows an example gives, and which tokens each row pools.
* `words`: which tokens belong to which word of a text.
* `folder`: how rows lie on disk with their ids and manifest; `simlab.load_representations`.
"""
