"""In which form a program is planned here, with what tuning has found out about that."""

from __future__ import annotations

from autofuse.backends.cache import content_key
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.simplify import Forms, forms_of
from autofuse.tuning.serve.kept import keep, own_text, recalled

# What is said where no plan of the simplified program computes what was written.
AS_WRITTEN = "the program is planned as it was written: simplified, {}"


def known_forms(graph: Graph, simplified: bool = True) -> Forms:
    """`forms_of`, and as it was written where no plan of the simplified program was right here."""
    forms = forms_of(graph, simplified)
    if forms.graph == forms.written:
        return forms
    found = recalled(_key(forms))
    return forms if found is None else as_written(forms, str(found.get("why", "")))


def keep_as_written(forms: Forms, why: str) -> None:
    """Plan a program as it was written from now on."""
    keep(_key(forms), {"why": why})


def as_written(forms: Forms, why: str) -> Forms:
    """A program that is to stay as it was written, and why."""
    return Forms(forms.written, forms.written, AS_WRITTEN.format(why))


def _key(forms: Forms) -> str:
    return content_key(["form", own_text(), digest(forms.written), digest(forms.graph)])
