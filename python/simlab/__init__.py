"""The experiment layer of simcore: from a model and a task to a table and figures.

Data flows one way, and every arrow is a file on disk::

    model + task --finetune--> checkpoint folders
         |                           |
         +---------extract-----------+--> representations/<name>/   (safetensors + manifest)
                                     |               |
                              truncate, skip      grids (simcore), localization
                                     |               |
                                     +--> results/*.parquet --plots--> figures/

The modules, in that order: `models`, `tasks`, `finetune`, `extract`, `truncate`, `skip`,
`grids`, `localization`, `results`, `plots`; `demo` joins them and `cli` is the ``simcore`` command.
`families` says where a model's layers and head are, `tasks.specs` what a task is made of; `words`
and `kinds` say what the rows of a representation are, `representations` how they lie on disk,
`measures` what a grid can compute.
`heads` are those of truncated models, `chain` is a model's layers one by one, `shorten` writes the
first of them as a checkpoint and `advice` says how many are enough. `files` and `jobs` make each
step atomic and resumable, `assets` fetches the offline model and data.

Importing `simlab` imports nothing heavy; each module loads its libraries where it uses them.
"""
