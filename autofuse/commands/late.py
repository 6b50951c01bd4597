"""Commands that are imported when they are asked for: help of the program needs none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command


@dataclass(frozen=True, slots=True)
class Late:
    """A command, or a group of them, in a module: `help` is the first line of its help, `example`
    ends the help of a command (a group's commands have their own)."""

    module: str
    name: str
    help: str
    example: str = ""

    def load(self) -> Any:
        """The command, ready to be called."""
        found: Any = getattr(import_module(f"autofuse.commands.{self.module}"), self.name)
        if isinstance(found, typer.Typer):
            return get_command(found)
        return _command(found, f"Example: {self.example}")


def _command(function: Callable[..., Any], epilog: str) -> Any:
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(epilog=epilog)(function)
    return get_command(alone)


class LateCommands(MutableMapping[str, Any]):
    """Commands by name, each loaded once."""

    def __init__(self, rows: Mapping[str, Late]) -> None:
        self.rows = dict(rows)
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            command = self.rows[name].load()
            command.name = name
            self._loaded[name] = command
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self.rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self.rows, **self._loaded})

    def __len__(self) -> int:
        return len({**self.rows, **self._loaded})

    def __contains__(self, name: object) -> bool:
        return name in self.rows or name in self._loaded


def late_group(rows: Mapping[str, Late]) -> type[TyperGroup]:
    """The class of a group with these commands."""

    class LateGroup(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.commands = LateCommands(rows)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            with formatter.section("Commands"):
                formatter.write_dl([(name, row.help) for name, row in rows.items()])

    return LateGroup
