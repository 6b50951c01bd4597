"""The version: the one place that says it, which pyproject.toml reads."""

__version__ = "0.2.0"
