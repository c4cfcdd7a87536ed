"""Commands of `simcore`: each calls the function of `simlab` with its name, and prints the result.

A module has the records of its commands as ``STEPS``; their options are made from these
(`simlab.steps`), and ``run`` prints. No module here loads a heavy library before its command runs,
so ``--help`` answers at once.

* `options`: the choices of papers, and messages that commands share.
* `patterns`: names such as ``seed-{0..24}``, which every command takes.
* `demo`: ``simcore demo``, a sweep whose file is ``demo.toml``.
* `representations`: ``simcore extract`` and ``simcore import``, which write a folder.
* `rows`: ``simcore grid``, ``localize``, ``skip`` and ``align-study``, which write results files.
* `pretrain`, `finetune`, `freeze_study`, `truncate`, `influence`, `blocks`, `plot`, `report`,
  `inject`, `claims`, `sweep`, `status`, `doctor`: each has the command of its name.
* `listing`: ``simcore models``, ``simcore tasks`` and ``simcore papers``.
"""
