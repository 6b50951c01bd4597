"""Candidate kernels: sets of nodes that can legally be one, for a planner to choose from."""
