"""Search strategies behind one protocol; they see opaque problems and no device."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from autofuse.errors import AutofuseError
from autofuse.search.driver import RunResult, SearchStep, run
from autofuse.search.protocol import (
    Choices,
    Chooser,
    Option,
    Outcome,
    Problem,
    Proposal,
    Resumable,
    Searcher,
    SearcherFactory,
)


def _on_demand(module: str) -> SearcherFactory:
    """The `create` of a module here, imported at first use: a query must not pay for Optuna."""

    def create(seed: int, options: Mapping[str, str]) -> Searcher:
        searcher: Searcher = import_module(f"{__name__}.{module}").create(seed, options)
        return searcher

    return create


SEARCHERS: dict[str, SearcherFactory] = {
    "optuna": _on_demand("optuna"),
    "random": _on_demand("random"),
}


def make_searcher(name: str, seed: int, options: Mapping[str, str] | None = None) -> Searcher:
    """A fresh searcher. Raises AutofuseError for an unknown strategy or option."""
    factory = SEARCHERS.get(name)
    if factory is None:
        raise AutofuseError(f"unknown strategy '{name}'; known: {', '.join(sorted(SEARCHERS))}")
    return factory(seed, options or {})


__all__ = [
    "SEARCHERS",
    "Choices",
    "Chooser",
    "Option",
    "Outcome",
    "Problem",
    "Proposal",
    "Resumable",
    "RunResult",
    "SearchStep",
    "Searcher",
    "SearcherFactory",
    "make_searcher",
    "run",
]
