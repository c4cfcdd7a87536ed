"""`python -m bench`: which jobs the command runs."""

import pytest

from bench import harness


class Tiny:
    def scaled(self, factor):
        return self


SUITES = {"first": {"a": Tiny(), "b": Tiny()}, "second": {"c": Tiny()}}


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--job", "a", "c"], ["a", "c"]),
        (["--job", "c", "--job", "a"], ["a", "c"]),
        ([], ["a", "b", "c"]),
    ],
)
def test_jobs_are_named_side_by_side(arguments, wanted, monkeypatch):
    """The help says "one or more", and argparse refused the second name after one `--job`."""
    ran = []
    monkeypatch.setattr(harness, "run", lambda suite, label, job, repeats: ran.append(label))
    monkeypatch.setattr(harness, "table", lambda rows: "")
    harness.main(SUITES, "A test.", [*arguments, "--dry-run"])
    assert ran == wanted


def test_an_unknown_job_is_refused(capsys):
    with pytest.raises(SystemExit) as caught:
        harness.main(SUITES, "A test.", ["--job", "a", "z"])
    assert caught.value.code == 2
    assert "'z'" in capsys.readouterr().err
