"""Sweeps: whole studies from one file, as jobs that survive whatever interrupts them.

The question becomes data, and data become jobs:

* `spec`: the file, its sections and their keys; `entries`: its models and tasks; `sections`: what
  sections have in common.
* `planner`: all jobs of a file; `study`: those that need one model; `comparisons`: those that
  compare models; `members`: who is compared; `fingerprints`: what keys contain of models and data.
* `plan`: a job and its key; a plan, which is all jobs of a file.

A folder holds what is done, and no other index:

* `folder`: objects by their keys, failures, logs; `parts`: the rows, gathered into one data set.
* `survey`: what is done, and what is still to do; `disk`: what may be deleted; `estimates`: what a
  plan takes.
* `missing`: models that the plan loads and the machine lacks.
* `claims`: which process works on a job.

Jobs are done by processes that an engine starts:

* `driver`: which job is next, and what becomes of it; `drivers`: who may drive a folder.
* `engine`: what an engine is; `local`: worker processes of this machine; `worker`: one of them.
* `cluster`: the nodes of a Ray cluster; `node_worker`: a process there; `resources`: what a job
  takes of a node.
* `execute`: doing one job, wherever; `steps`: a function for each kind of job.

And people look at it:

* `sweep`: `Sweep`, the class for Python; `status`: jobs by state, rate, time left; `show`: plans
  and statuses as tables.
"""
