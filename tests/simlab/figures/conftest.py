"""Fixtures of the tests of figures."""

from pathlib import Path

import pytest

from simlab.figures.draw import plot


@pytest.fixture
def names_of_files(monkeypatch):
    """Return a function that plots a table and returns the names of the files.

    It writes no file, because rendering takes most of the time of a figure.
    """
    monkeypatch.setattr("simlab.figures.draw.drawn", lambda figure, format: b"")
    monkeypatch.setattr("simlab.figures.draw.write_bytes", lambda path, content: None)
    return lambda frame: [file.stem for file in plot(frame, Path("figures"), ("png",))]
