"""Benchmarks at scale: ours beside the best torch formulation, the peers and the floor."""
