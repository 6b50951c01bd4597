"""What a text needs of the head that it follows."""

from __future__ import annotations

import re

# A line that begins a part of a head, with what mentions it is needed by.
_PART = re.compile(r"^/\* part: (.+) \*/\n", re.MULTILINE)


def needed_parts(head: str, text: str) -> str:
    """`head` without those of its parts that neither `text` nor a later part mentions: reading a
    whole head takes as long as compiling a small kernel."""
    first, *rest = _PART.split(head)
    kept: list[str] = []
    for names, part in reversed(list(zip(rest[::2], rest[1::2], strict=True))):
        if any(name in one for name in names.split() for one in (text, *kept)):
            kept.append(part)
    return "".join([first, *reversed(kept)])
