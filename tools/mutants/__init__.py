"""Planted faults that the tests must find: `draw` makes them, `run` holds the tests to them."""
