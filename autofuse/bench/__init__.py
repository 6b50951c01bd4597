"""Comparing autofuse with the compilers and libraries people use today."""
