"""Figures, drawn from the results table alone."""
