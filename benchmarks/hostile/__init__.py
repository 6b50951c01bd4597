"""Damaged and hostile inputs of every format that the command line reads."""
