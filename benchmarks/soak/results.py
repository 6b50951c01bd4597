"""What soaks found, kept in one file: each part by what it was, so that they may run one by one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autofuse.backends.machine import cpu_model
from autofuse.limits import usable_cores


def keep(path: Path, part: str, found: Mapping[str, Any]) -> None:
    """Write a part into the file, in place of what it had of that part: on which processor it was
    taken, and how many processes waited for one on the average of the last 15 minutes ("load")."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    machine = {"cpu": cpu_model(), "cores": usable_cores(), "load": round(os.getloadavg()[2], 1)}
    text = json.dumps(dict(sorted({**known, part: {**machine, **found}}.items())), indent=1)
    path.write_text(text + "\n", encoding="utf-8")
