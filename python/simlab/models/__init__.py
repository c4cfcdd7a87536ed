"""Models: where they are, their layers and heads, batches for them."""
