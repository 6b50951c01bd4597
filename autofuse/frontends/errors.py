"""The errors of front ends."""

from autofuse.errors import GraphError


class FrontendError(GraphError):
    """A program that cannot become a graph; `located` once the message names where it says so."""

    def __init__(self, message: str, located: bool = False) -> None:
        super().__init__(message)
        self.located = located


class TraceError(FrontendError):
    """Traced Python did something no graph can hold."""
