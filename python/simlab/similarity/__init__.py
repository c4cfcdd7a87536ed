"""Measures between stored representations, and what is read off their grids."""
