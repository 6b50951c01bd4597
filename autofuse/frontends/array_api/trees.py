"""Nested tuples, lists and dicts of arrays, flattened and put back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Tree = Any  # a leaf, or a tuple, list or dict of trees


def flatten(tree: Tree) -> list[Any]:
    """The leaves, in order; dicts in their own key order."""
    if isinstance(tree, Mapping):
        return [leaf for part in tree.values() for leaf in flatten(part)]
    if isinstance(tree, list | tuple):
        return [leaf for part in tree for leaf in flatten(part)]
    return [tree]


def unflatten(like: Tree, leaves: Iterable[Any]) -> Tree:
    """`like` with its leaves replaced, in order."""
    return _rebuild(like, iter(leaves))


def _rebuild(like: Tree, leaves: Iterator[Any]) -> Tree:
    if isinstance(like, Mapping):
        return {key: _rebuild(part, leaves) for key, part in like.items()}
    if isinstance(like, tuple) and hasattr(like, "_fields"):
        return type(like)(*(_rebuild(part, leaves) for part in like))
    if isinstance(like, list | tuple):
        return type(like)(_rebuild(part, leaves) for part in like)
    return next(leaves)


def structure(tree: Tree) -> str:
    """A text equal for trees of equal structure; for messages and comparison."""
    if isinstance(tree, Mapping):
        return "{" + ", ".join(f"{k}: {structure(v)}" for k, v in tree.items()) + "}"
    if isinstance(tree, list | tuple):
        inner = ", ".join(structure(v) for v in tree)
        return f"[{inner}]" if isinstance(tree, list) else f"({inner})"
    return "*"
