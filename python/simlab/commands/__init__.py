"""Commands of `simcore`: each calls the function of `simlab` with its name, and prints the result.

`cli` has the table of commands, with the step (`simlab.steps`) of which the options are made, and
the function that runs it. No module here loads a heavy library before its command runs, so
``--help`` answers at once.

* `options`: the choices of papers, and messages that commands share.
* `models`: ``simcore pretrain``, ``finetune``, ``freeze-study``, ``extract``, ``import``,
  ``truncate``, ``influence`` and ``inject``.
* `results`: ``simcore grid``, ``localize``, ``skip``, ``align-study``, ``blocks``, ``claims``,
  ``plot``, ``report``, ``compare`` and ``check``.
* `sweeps`: ``simcore sweep``, ``status``, and ``demo``, a sweep whose file is ``demo.toml``.
* `listing`: ``simcore models``, ``tasks``, ``papers`` and ``doctor``.
"""
