"""The simplifier: rules that bring programs written differently to one graph, a file a family."""

from autofuse.simplify import (
    arithmetic,
    casts,
    comparisons,
    convolutions,
    cuts,
    folding,
    folds,
    invariants,
    loops,
    masks,
    moves,
    picks,
    powers,
    products,
    regrouping,
    stacks,
)
from autofuse.simplify.driver import Rewrite, Simplified, normal_form, simplify
from autofuse.simplify.rules import RULES, Simplification, rule

__all__ = [
    "RULES",
    "Rewrite",
    "Simplification",
    "Simplified",
    "arithmetic",
    "casts",
    "comparisons",
    "convolutions",
    "cuts",
    "folding",
    "folds",
    "invariants",
    "loops",
    "masks",
    "moves",
    "normal_form",
    "picks",
    "powers",
    "products",
    "regrouping",
    "rule",
    "simplify",
    "stacks",
]
