"""Sweeps: whole studies from one file, as jobs that survive whatever interrupts them.

::

    sweep.toml --spec--> Spec --planner--> Plan: jobs, each with its key and what it needs
                                             |
         +-----------------------------------+
         v                     Order                      Order
      driver: which job next? ------> engine: processes ------> worker: execute
         ^                              local | Ray                  |  claim the key, check inputs
         |   Answer: made, busy, failed ...                          |  step: the command's function
         +-----------------------------------------------------------+  publish by one rename
         |                                                           |
         | gathering: parts into few files                           v
         +--------------> results/  <------------- objects/KIND/KEY: folders, and parts of rows

The question becomes data, and data become jobs:

* `spec`: the file, its sections and their keys; `entries`: its models and tasks; `sections`: what
  sections have in common.
* `planner`: all jobs of a file; `study`: the jobs that need one model; `comparisons`: the jobs that
  compare layers; `maps`: maps and injections between models; `members`: which models are compared;
  `step_pairs`: which steps of a training are compared; `repeated`: which steps have the same
  weights.
* `fingerprints`: what keys contain of models and data; `contents`: local models and data, and
  whether they stay as they were planned.
* `plan`: a job and its key; a plan, which is all jobs of a file.

A folder holds what is done, and no other index:

* `folder`: objects by their keys, failures, logs; `records`: the shapes of its small files.
* `parts`: files of rows, and which are damaged; `dataset`: all rows, gathered into few files.
* `survey`: what is done, and what is still to do; `disk`: what may be deleted; `estimates`: what a
  plan takes.
* `names`: links to objects, by names for people.
* `missing`: models that the plan loads and the machine lacks; `fetching`: steps of a training that
  are downloaded when their jobs come.
* `claims`: which process works on a job, and how another takes over; `watch`: which claims have no
  owner any more; `processes`: which process this is; `scratch`: where an owner makes an output;
  `finished`: the log; `leftovers`: what ended processes leave; `locking`: locks, and the mounts
  whose locks hold on one machine alone; `neighbours`: drivers of other machines, and their locks.

Jobs are done by processes that an engine starts:

* `driver`: which job is next, and what becomes of it; `drivers`: who may drive a folder;
  `elsewhere`: jobs that others work on; `attempts`: how often a job is tried; `gathering`: when
  rows move into the data set.
* `engine`: what an engine is; `local`: worker processes of this machine; `worker`: one of them.
* `slurm`: job arrays of Slurm.
* `cluster`: the nodes of a Ray cluster; `node_worker`: a process there; `resources`: what a job
  takes of a node.
* `execute`: doing one job, wherever; `inputs`: what it reads of other jobs, and whether that stays
  whole; `failures`: the record of one that failed; `steps`: a function for each kind of job.

And people look at it:

* `sweep`: `Sweep`, the class for Python; `progress`: what a running sweep shows; `status`: jobs by
  state, rate, time left; `show`: plans and statuses as tables.
"""
