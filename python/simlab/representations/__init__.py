"""What the rows of a representation are, and how they lie on disk."""
