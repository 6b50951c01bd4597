"""Random valid graphs of every op, through everything that a program goes through."""
