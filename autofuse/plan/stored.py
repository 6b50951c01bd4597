"""Launch configurations as they are stored: under the names of their time, and maybe anybody's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autofuse.plan.parameters import (
    C_LAUNCH,
    CUDA_LAUNCH,
    LAUNCH_TABLES,
    LaunchConfig,
    LaunchSettingError,
    Setting,
)

# Characters of a setting that no parameter of today has.
_MOST_SPELT = 80
# Names that stored configurations may still use, and the present ones. On CUDA one name was two
# things: which of them matters depends on the kernel, and the other one is without effect.
FORMER: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "c": {"vector": ("vector_bits",), "unroll": ("loop_unroll",)},
    "cuda": {"unroll": ("compiler_unroll", "loop_unroll")},
}


def dialect_of(settings: Mapping[str, Setting]) -> str:
    """The dialect that a stored configuration is for: every one for CUDA that says anything has a
    parameter that C has not (it always says `grid`)."""
    own = CUDA_LAUNCH.keys() - C_LAUNCH.keys() - FORMER["c"].keys()
    return "cuda" if own & settings.keys() else "c"


def present_names(dialect: str, name: str) -> tuple[str, ...]:
    """The names that a parameter has now, given the name it was stored under."""
    return FORMER[dialect].get(name, (name,))


def stored_launch(settings: Mapping[str, Setting]) -> LaunchConfig:
    """A stored configuration under the names of today. Raises LaunchSettingError for a setting that
    no kernel of any dialect can have: what is stored may be anybody's."""
    dialect = dialect_of(settings)
    found = {new: value for old, value in settings.items() for new in present_names(dialect, old)}
    for name, value in found.items():
        _check_stored(name, value)
    return LaunchConfig.of(**found)


def _check_stored(name: str, value: Any) -> None:
    """Parameters that are known under this name have it among their settings; of others, which an
    older version may have had, only that they are short: no kernel reads them."""
    rows = [table[name] for table in LAUNCH_TABLES.values() if name in table]
    if any(row.has(value) for row in rows):
        return
    if rows:
        rows[0].checked(value)
    if type(value) not in (int, str, bool) or len(ascii(value)) > _MOST_SPELT:
        raise LaunchSettingError(f"launch setting {ascii(name)[:40]} is no plain value")
