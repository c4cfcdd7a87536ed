"""The steps of simcore, each declared once: its function, its options, its files, its examples.

The command of a step, the spelling of its arguments in messages, and the test that types each of
its options are made from the record.

* `record`: what a step is, and how its parameters are read from its function and options.
* `catalogue`: the steps.
* `words`: the spelling of an argument on the command line and in a sweep file.
"""
