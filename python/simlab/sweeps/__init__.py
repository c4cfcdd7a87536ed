"""Sweeps: whole studies from one file, as jobs that survive whatever interrupts them.

::

    sweep.toml --spec--> Spec --sweep----> Plan: jobs, each with its key and what it needs
                                             |
         +-----------------------------------+
         v                     Order                       Order
      driver: which job next? ------> executor: processes ------> job.do
         ^                       pool | cluster                     |  inputs and sources whole?
         |   Answer, or Died                                        |  step: the command's function
         +----------------------------------------------------------+  publish by one rename
         |                                                          v
         | gathering: parts into few files          objects/KIND/KEY: folders, and parts of rows
         +--------------> results/

* What is asked: `spec`, the file; `entries`, its models and tasks; `sources`, what keys contain of
  models and data, and whether they stay so; `members`, which models are compared; `study`, the jobs
  that read one model; `comparisons`, the jobs that compare; `plan`, a job and its key.
* What is there: `outputs`, the folder of a sweep, in which the first output of a key stays; `rows`,
  all rows in few files.
* How it runs: `driver`, one a folder; `disk`, what jobs take, what may start and what may go;
  `job`, doing one, wherever; `steps`, a function for each kind; `engines`, executors on other
  machines, and what a job takes of a node; `pool`, `cluster`, the executors; `status`, how far it
  is; `sweep`, for Python, with the plan of all jobs.
"""
