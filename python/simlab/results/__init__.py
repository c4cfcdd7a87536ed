"""Results: the one table of results, its rows, and how it is written and read.

* `results`: the table: its columns, the names of its rows, draws over examples, writing.
* `tables`: a table in one file, written once per set of inputs.
* `reading`: reading results files, with the rows of a sweep in the order of its plan.
* `labels`: labels of models, and the name of the task in them.
"""
