"""What CONTRIBUTING.md and the design notes say is so: examples are those that `test_extension.py`
adds, and files that are named exist. `test_layers.py` has the map."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.extending import EXTENSIONS, HERE

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ADDED = "# added to "


def blocks(kind: str) -> list[str]:
    """The Python blocks under a heading."""
    (_, _, rest) = TEXT.partition(f"### {kind}\n")
    return re.findall(r"```python\n(.*?)```", rest.partition("\n### ")[0], re.S)


@pytest.mark.parametrize("kind", EXTENSIONS)
def test_an_example_is_what_is_really_added(kind: str) -> None:
    extension = EXTENSIONS[kind]
    *files, lines = blocks(kind)
    source = (HERE / extension.file).read_text(encoding="utf-8")
    assert files in ([], [f"# {extension.file}\n{source}"])
    assert files or f"(tests/extensions/{extension.file})" in TEXT, "shown or linked"
    found, file = [], ""
    for line in lines.splitlines():
        if line.startswith(ADDED):
            file = line.removeprefix(ADDED)
        elif line:
            found.append((file, line))
    assert tuple(found) == extension.lines


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_named_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    folders = "tests|scripts|docs|benchmarks|autofuse|search_spaces|tuning_db"
    names = re.findall(rf"`((?:{folders})/[\w./]+\.\w+)`", text)
    assert [name for name in names if not (ROOT / name).exists()] == []
    links = re.findall(r"\]\(([\w./-]+)\)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []
    scripts = re.findall(r"scripts/(\w+)", text)
    assert [name for name in scripts if not (ROOT / "scripts" / name).exists()] == []
