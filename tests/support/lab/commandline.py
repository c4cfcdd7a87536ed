"""The result that every mistake on the command line must have."""


def check_refused(outcome, *words):
    """Check for one line with all `words` on standard error, no other output, and exit code 2."""
    code, printed, errors = outcome
    assert code == 2
    assert printed == ""
    assert len(errors) == 1, errors
    assert errors[0].startswith("error: ")
    for word in words:
        assert word in errors[0]
