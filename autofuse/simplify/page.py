"""docs/simplifications.md: the rules, and the identities that are none."""

from __future__ import annotations

from autofuse.simplify.refused import REFUSED
from autofuse.simplify.rules import RULES

_HEAD = """# Simplifications

Written by `pytest tests/test_simplify.py --update-golden` from `autofuse/simplify/`.

A graph is rewritten by these rules until none applies, before its digest is taken, so that
programs written differently share plans and times. `autofuse show GRAPH --simplify` prints what
each rule did, and `--no-simplify` keeps a program as it is written. Every rule has its cases in
`tests/support/simplify_cases.py` and the tables beside it; they are also held to the reference on
NaN, infinities and zeros of both signs. The sign of a sum that is zero is nobody's to rely on.
"""
_REFUSED = """
## What is not done

These identities do not hold for every number, so they are not applied.

| before | not | done by | because |
|---|---|---|---|"""


def simplifications_page() -> list[str]:
    """The lines of the page."""
    lines = _HEAD.splitlines()
    for family in sorted({each.family for each in RULES.values()}):
        lines += ["", f"## {family}", "", "| rule | what it does | known as |", "|---|---|---|"]
        for each in RULES.values():
            if each.family == family:
                does = each.does.replace("|", "\\|")
                known = each.source.replace("|", "\\|")
                lines.append(f"| {each.name} | {does} | {known} |")
    lines += _REFUSED.splitlines()
    lines += [f"| `{r.before}` | `{r.after}` | {r.source} | {r.because} |" for r in REFUSED]
    return lines
