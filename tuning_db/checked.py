"""Checks that what is read is what it should be: a damaged file may hold anything anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from sqlalchemy import Row

from tuning_db.errors import DatabaseError

T = TypeVar("T")
E = TypeVar("E")
Test = Callable[[Any], bool]
_MOST_SHOWN = 40
# A digest is whole.
_MOST_NAMED = 80


def checked(record: T) -> T:
    """`record`, a dataclass, if its fields are of their types; raises DatabaseError."""
    kind: Any = type(record)
    for name, fits in _tests(kind):
        value = getattr(record, name)
        if not fits(value):
            raise DatabaseError(f"a row is damaged: {name} of a {kind.__name__} is {shown(value)}")
    return record


def pairs_of(text: str) -> tuple[tuple[Any, Any], ...]:
    """The pairs of a JSON list; raises DatabaseError."""
    try:
        return tuple((name, value) for name, value in json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise DatabaseError(f"a row is damaged: {shown(text)} is no list of pairs") from error


def identified(found: Iterable[E]) -> Iterator[E]:
    """Rows as they come from a query, the entity or its first column; raises DatabaseError for one
    whose identity is lost, which SQLAlchemy takes for no entity at all."""
    for row in found:
        if row is None or (isinstance(row, Row) and row[0] is None):
            raise DatabaseError("a row is damaged: it has lost its number")
        yield row


def shown(value: object) -> str:
    """A value in printable ASCII, the beginning of it if it is long."""
    text = ascii(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def named(name: str) -> str:
    """A name as it is, or what is `shown` of one that a damaged file may have: in a sentence whole
    texts are none."""
    return name if name.isprintable() and len(name) <= _MOST_NAMED else shown(name)


@lru_cache(maxsize=64)
def _tests(kind: type[Any]) -> tuple[tuple[str, Test], ...]:
    hints = get_type_hints(kind)
    return tuple((field.name, _test(hints[field.name])) for field in fields(kind))


def _test(hint: Any) -> Test:
    """Whether a value is of this type; a whole number will do for a float, no record is entered."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        choices = [_test(part) for part in parts]
        return lambda value: any(fits(value) for fits in choices)
    if origin is tuple and parts[-1] is Ellipsis:
        each = _test(parts[0])
        return lambda value: type(value) is tuple and all(map(each, value))
    if origin is tuple:
        own = [_test(part) for part in parts]
        return lambda value: (
            type(value) is tuple
            and len(value) == len(own)
            and all(fits(item) for fits, item in zip(own, value, strict=True))
        )
    kinds = (float, int) if hint is float else (NoneType if hint is None else hint,)
    return lambda value: type(value) in kinds
