"""Store: files, jobs, the terminal and the process around every step.

* `files`: atomic writes, content hashes, errors of the file system as one-line messages.
* `jobs`: jobs that run once per set of inputs and continue where they were interrupted, one process
  at a time.
* `arrays`: arrays on disk that are filled piece by piece.
* `assets`: the offline model and data sets, downloaded once per machine.
* `hub`: errors of the hub of Hugging Face and its clients, as one line.
* `runtime`: the device, package versions, silencing libraries, and what `simcore doctor` prints.
* `console`: messages, tables, notes and progress bars.
"""
