"""Store: what every step needs around it, and the one results table.

* `files`: atomic writes, content hashes, what a system that refuses to write is turned into.
* `jobs`: steps that run once, keyed by a hash of their inputs, resumed where they were.
* `ownership`: one process at a time for each output.
* `results`: the table, its columns, the names of its rows, reading and writing it.
* `arrays`: arrays on disk that are filled piece by piece.
* `assets`: the offline model and data sets, fetched once a machine.
* `runtime`: the device, versions, quiet libraries, whether the hub answers.
* `console`: messages, tables, notes and progress.
"""
