"""What a mistake on the command line must come to."""


def check_refused(outcome, *words):
    """One line with all `words` on standard error, nothing on standard output, exit code 2."""
    code, printed, errors = outcome
    assert code == 2
    assert printed == ""
    assert len(errors) == 1, errors
    assert errors[0].startswith("error: ")
    for word in words:
        assert word in errors[0]
