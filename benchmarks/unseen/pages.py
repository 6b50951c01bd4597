"""What the script prints besides its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.unseen.types import Program

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def listing(programs: Sequence[Program]) -> str:
    """Name, kind and package of each, and what is not here."""
    return "\n".join(f"{p.name:40} {p.kind:14} {p.package}{_missing(p)}" for p in programs)


def _missing(program: Program) -> str:
    return f"  (absent: {', '.join(program.absent)})" if program.absent else ""


def summary_text(found: Mapping[str, Any]) -> str:
    """The figures over all rows, by budget."""
    told = [f"{found['cpu']}, {found['threads']} threads. {found['note']}".strip()]
    for budget, figures in found["summary"]["budgets"].items():
        told += [f"{budget} s:", *(f"  {name}: {_text(each)}" for name, each in figures.items())]
    if found["summary"]["near"]:
        told.append(f"seconds to within 5 % of the longest: {_text(found['summary']['near'])}")
    if found["absent"]:
        told.append(f"{len(found['absent'])} programs are absent: pip install --no-deps -r "
                    f"{REQUIREMENTS.name} (benchmarks/unseen)")  # fmt: skip
    return "\n".join(told)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return json.dumps(value, default=str)
