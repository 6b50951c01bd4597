"""The one error of bad input; every package may import it, it imports nothing."""

from __future__ import annotations


class AutofuseError(Exception):
    """Bad input, said in one sentence: the command line prints it and exits 2."""
