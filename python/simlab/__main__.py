"""The start of the command ``simcore``: where a package is missing, one line says what to install.

Nothing that simcore does not require is imported before `main` runs.
"""

import sys
import warnings

USAGE_ERROR = 2


def main() -> None:
    """Run the command line and exit with its code: 2, with one line, where a package is missing."""
    try:
        from simlab.cli import main as run

        run()
    except ImportError as error:
        print(f"error: {_missing(error)}", file=sys.stderr)
        sys.exit(USAGE_ERROR)


def _missing(error: ImportError) -> str:
    """Return what to install; raise an error that no installation would put right."""
    if error.name == "simcore._C":  # torch is missing, or does not fit the extension
        return str(error)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that operations of torch compute: nothing is computed
            from simcore._optional import missing_from_lab
    except ImportError as refused:
        if refused.name != "simcore._C":
            raise
        return str(refused)
    cure = missing_from_lab(error, "the command simcore")
    if cure is None:
        raise error
    return cure


if __name__ == "__main__":
    main()
