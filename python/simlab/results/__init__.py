"""Results: the one table of results, its rows, and how it is written and read.

* `results`: the table: its columns, names of its rows, labels of models, draws, writing.
* `tables`: a table in one file, written once per set of inputs.
* `reading`: reading results files, with the rows of a sweep in the order of its plan.
"""
