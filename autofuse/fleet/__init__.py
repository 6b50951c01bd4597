"""Tuning many graphs on several device units."""
