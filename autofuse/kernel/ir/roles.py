"""What a field of a statement means to the names and expressions of a kernel.

A statement says it once, in the type of the field: `index: Expr` is evaluated, `buffer: Writes` is
written, and a panel may be `Annotated[Panel, FieldRole.READ]`. A field may hold tuples of these,
and parts with fields of their own. Liveness, renaming and the verifier follow from a `RolePlan`,
which is made once for each class.
"""

from __future__ import annotations

import builtins
import types
import typing
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, is_dataclass
from enum import Enum, auto
from itertools import cycle
from operator import attrgetter
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from autofuse.ops.scalar import Call, Expr, Load, Sym

Change = Callable[[Expr], Expr]


class FieldRole(Enum):
    """What a statement does with a name or an expression."""

    # Computed.
    EVALUATED = auto()
    # Renamed with what it tells of, and computed by nobody.
    NOTED = auto()
    READ = auto()
    # It existed before and gets a new value.
    WRITTEN = auto()
    # Read and written.
    UPDATED = auto()
    # Known from here on, and never changed.
    DEFINED = auto()
    # Known from here on, to be written by others.
    DECLARED = auto()
    # It must exist; others read or write it.
    MENTIONED = auto()
    # Known in the body of the statement.
    BOUND = auto()
    # Known in the statement's own expressions.
    OWN = auto()
    # In a part: as the field says that holds the part.
    HELD = auto()
    # In a part: read by who writes the part, and by nobody else.
    SOURCE = auto()
    # Statements inside this one.
    BODY = auto()


Noted = Annotated[Expr, FieldRole.NOTED]
# Names of buffers; where "" may stand for none, there is nothing to it.
Reads = Annotated[str, FieldRole.READ]
Writes = Annotated[str, FieldRole.WRITTEN]
Updates = Annotated[str, FieldRole.UPDATED]
Declares = Annotated[str, FieldRole.DECLARED]
Mentions = Annotated[str, FieldRole.MENTIONED]
HeldName = Annotated[str, FieldRole.HELD]
# Symbols.
Defines = Annotated[Sym, FieldRole.DEFINED]
Register = Annotated[Sym, FieldRole.DECLARED]
Assigns = Annotated[Sym, FieldRole.WRITTEN]
Binds = Annotated[Sym, FieldRole.BOUND]
OwnSym = Annotated[Sym, FieldRole.OWN]

Roles = Set[FieldRole]
Find = Callable[[Any], tuple[Any, ...]]
Rebuild = Callable[[Any, Change], Any]
_EXPRESSIONS = frozenset(get_args(Expr))


@dataclass(frozen=True, slots=True)
class RolePlan:
    """What to ask a statement of one class: all but the first two give names."""

    # The statement with a change applied to every expression, loop bodies included.
    mapped: Rebuild
    # What is evaluated, in the order of the fields.
    expressions: Find
    # Names that are read, beside those in expressions.
    read: Find
    # Names that existed before and get new values.
    written: Find
    # Names that are new.
    defined: Find
    # Those of them that others may write.
    declared: Find
    # Names that must exist, beside those that are read or written.
    mentioned: Find
    # Names that the body knows.
    bound: Find
    # Names that the expressions know.
    own: Find


# Of each field of a RolePlan that finds members, in order: their roles.
_QUERIES = (
    {FieldRole.EVALUATED},
    {FieldRole.READ, FieldRole.UPDATED},
    {FieldRole.WRITTEN, FieldRole.UPDATED},
    {FieldRole.DEFINED, FieldRole.DECLARED},
    {FieldRole.DECLARED},
    {FieldRole.MENTIONED},
    {FieldRole.BOUND},
    {FieldRole.OWN},
)


class _Plans(dict[type, RolePlan]):
    def __missing__(self, kind: type) -> RolePlan:
        finds = [_members(kind, wanted, None) or _none for wanted in _QUERIES]
        self[kind] = RolePlan(_rebuilt(kind) or _unchanged, *finds)
        return self[kind]


_PLANS = _Plans()


def plan_of(stmt: object) -> RolePlan:
    """The plan of a statement's class."""
    return _PLANS[type(stmt)]


def names_in(expr: Expr) -> Iterator[str]:
    """Names of the symbols and buffers that an expression reads."""
    stack = [expr]
    while stack:
        e = stack.pop()
        if isinstance(e, Call):
            stack.extend(e.args)
        elif isinstance(e, Sym):
            yield e.name
        elif isinstance(e, Load):
            yield e.buffer
            stack.append(e.index)


def _none(_: Any) -> tuple[()]:
    return ()


def _one(value: Any) -> tuple[Any]:
    return (value,)


def _named(sym: Sym) -> tuple[str]:
    return (sym.name,)


def _unchanged(value: Any, _: Change) -> Any:
    return value


def _applied(expr: Any, change: Change) -> Any:
    return change(expr)


def _body(body: tuple[Any, ...], change: Change) -> tuple[Any, ...]:
    return tuple([plan_of(stmt).mapped(stmt, change) for stmt in body])


def _hints(kind: type) -> dict[str, Any]:
    """The types of the fields of a class, in order."""
    return get_type_hints(kind, include_extras=True)


def _items(hint: Any) -> list[Any]:
    """The types of the items of a tuple; where there are more items they come again and again."""
    return [item for item in get_args(hint) if item is not ...]


def _kinds(hint: Any) -> dict[Any, Any]:
    """The types of a union, and what to take them for: those of expressions for an Expr."""
    kinds = frozenset(get_args(hint))
    whole = kinds >= _EXPRESSIONS
    return {kind: Expr if whole and kind in _EXPRESSIONS else kind for kind in kinds}


def _find(
    hint: Any, wanted: Roles, held: FieldRole | None, role: FieldRole | None = None
) -> Find | None:
    """What finds members of `wanted` roles in a value of this type, which has a role itself, in a
    part `held` in another one; None: there are none."""
    match get_origin(hint):
        case typing.Annotated:
            kind, own = get_args(hint)
            source = FieldRole.READ if held is FieldRole.WRITTEN else None
            own = {FieldRole.HELD: held, FieldRole.SOURCE: source}.get(own, own)
            return None if own is FieldRole.BODY else _find(kind, wanted, held, own)
        case builtins.tuple:
            return _in_items([_find(item, wanted, held, role) for item in _items(hint)])
        case types.UnionType | typing.Union if hint != Expr:
            made = {kind: _find(one, wanted, held, role) for kind, one in _kinds(hint).items()}
            table = {kind: one or _none for kind, one in made.items()}
            return (lambda value: table[type(value)](value)) if any(made.values()) else None
    if hint in (str, Sym, Expr):
        asked = FieldRole.EVALUATED if hint == Expr and role is None else role
        return (_named if hint is Sym else _one) if asked in wanted else None
    return _members(hint, wanted, role) if is_dataclass(hint) else None


def _in_items(finds: list[Find | None]) -> Find | None:
    """What finds members in the items of a tuple."""
    each = [find or _none for find in finds]

    def found(value: tuple[Any, ...]) -> tuple[Any, ...]:
        pairs = zip(cycle(each), value, strict=False)
        return tuple([member for find, item in pairs for member in find(item)])

    return found if any(finds) else None


def _members(kind: Any, wanted: Roles, held: FieldRole | None) -> Find | None:
    """What finds members of `wanted` roles in the fields of a class."""
    asked = {name: _find(hint, wanted, held) for name, hint in _hints(kind).items()}
    finds = {name: find for name, find in asked.items() if find is not None}
    if not finds:
        return None
    if not set(finds.values()) <= {_one, _named}:
        steps = tuple(finds.items())
        return lambda value: tuple([m for name, find in steps for m in find(getattr(value, name))])
    get = attrgetter(*(f"{name}.name" if f is _named else name for name, f in finds.items()))
    return get if len(finds) > 1 else lambda value: (get(value),)


def _rebuilt(kind: Any) -> Rebuild | None:
    """What makes an instance of a class anew from changed expressions; None: it has none."""
    steps = [(attrgetter(name), _changed(hint)) for name, hint in _hints(kind).items()]

    def rebuild(value: Any, change: Change) -> Any:
        return kind(*[one(get(value), change) if one else get(value) for get, one in steps])

    return rebuild if any(one for _, one in steps) else None


def _changed(hint: Any) -> Rebuild | None:
    """What changes the expressions in a value of this type; None: there are none."""
    match get_origin(hint):
        case typing.Annotated:
            kind, own = get_args(hint)
            return _body if own is FieldRole.BODY else _changed(kind)
        case builtins.tuple:
            return _changed_items([_changed(item) for item in _items(hint)])
        case types.UnionType | typing.Union if hint != Expr:
            table = {kind: _changed(one) or _unchanged for kind, one in _kinds(hint).items()}
            return lambda value, change: table[type(value)](value, change)
    if hint == Expr:
        return _applied
    return _rebuilt(hint) if is_dataclass(hint) and hint is not Sym else None


def _changed_items(ones: list[Rebuild | None]) -> Rebuild | None:
    """What changes the expressions in the items of a tuple."""
    each = [one or _unchanged for one in ones]

    def changed(value: tuple[Any, ...], change: Change) -> tuple[Any, ...]:
        return tuple([one(item, change) for one, item in zip(cycle(each), value, strict=False)])

    return changed if any(ones) else None
