"""What the steps of simcore have in common wherever a user gives their arguments.

* `words`: the spelling of an argument on the command line and in a sweep file.
"""
