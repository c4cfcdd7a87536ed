"""The choices of three papers, as data: what each text says, what its code does, what we take.

A command with ``--paper NAME`` takes the choices of that paper for every option that the command
line does not give. `presets.paper_options` gives the same choices to functions of Python.

* `presets`: rows of a table (`Choice`), differences that no option covers (`Difference`), the
  papers by name, and the options that a paper chooses.

The tables are ``NAME.toml``, here and in the folder ``$SIMCORE_TABLES``: the fields of
`PaperPreset`, with `choices` grouped by command (or a list of commands) and condition. A text that
is left out is not stated, and a code that is left out is not published. To add a choice: a row in
the table of the paper; for a command that has no ``--paper`` yet, no ``has_paper=False`` in the
record of its step (`simlab.steps`). `simcore papers` prints the tables.
"""
