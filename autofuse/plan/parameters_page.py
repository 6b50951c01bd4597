"""docs/launch-parameters.md, written from the tables."""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.plan.parameters import LAUNCH_TABLES, Setting


def launch_parameters_page() -> Iterator[str]:
    """The lines of docs/launch-parameters.md."""
    yield "# Launch parameters"
    yield ""
    yield "Written from the tables in `autofuse/plan/parameters.py` by `tests/test_parameters.py`."
    yield "A kernel that is told nothing gets the default; *count* is any whole number."
    for dialect, table in LAUNCH_TABLES.items():
        yield from ("", f"## {dialect}", "")
        yield "| parameter | choices | default | kernels | changes the text | meaning |"
        yield "|---|---|---|---|---|---|"
        for row in table.values():
            shown = ", ".join(_shown(choice) for choice in row.choices)
            more = "" if row.least is None else " (count)"
            cells = (
                f"`{row.name}`", shown + more, _shown(row.default), ", ".join(row.kinds) or "-",
                "yes" if row.changes_text else "no", row.doc,
            )  # fmt: skip
            yield f"| {' | '.join(cells)} |"


def _shown(value: Setting) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) or "nothing"
