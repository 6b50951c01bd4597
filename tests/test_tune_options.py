"""What tuning is asked for: one list of fields, for the library, its keywords and the command."""

from __future__ import annotations

import ast
import inspect
import math
from dataclasses import fields
from itertools import pairwise
from typing import Any

import pytest

import autofuse
from autofuse.commands import tuning as commands
from autofuse.errors import AutofuseError
from autofuse.tuning import TuneOptions
from autofuse.tuning import options as options_module
from autofuse.tuning.options import TuneKeywords

NAMES = [field.name for field in fields(TuneOptions)]
# What the command calls a field, where it does not call it by its name.
CALLED = {"budget_s": "budget", "simplify": "no_simplify", "options": "sampler"}
# What only a program can give; the command calls a graph what its source is called.
NO_OPTION = {"name", "progress", "stop", "build", "advice"}


def graph() -> autofuse.Graph:
    return autofuse.trace(lambda x: x + 1, autofuse.spec(3))


def test_type_checkers_know_every_field_as_it_is() -> None:
    told = {n: hint.__forward_arg__ for n, hint in TuneKeywords.__annotations__.items()}
    assert told == TuneOptions.__annotations__ and [*told] == NAMES


def test_every_field_says_what_it_is() -> None:
    tree = ast.parse(inspect.getsource(options_module))
    classes = {n.name: n.body for n in tree.body if isinstance(n, ast.ClassDef)}
    said = {
        one.target.id: after.value.value
        for one, after in pairwise(classes["TuneOptions"])
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }
    assert [*said] == NAMES and all(len(str(text)) > 20 for text in said.values())


def test_the_command_has_an_option_for_every_field_with_its_default() -> None:
    options = inspect.signature(commands.tune).parameters
    own = {name: options[CALLED.get(name, name)].default for name in set(NAMES) - NO_OPTION}
    assert own.pop("options") is None and own.pop("simplify") is False  # they say the opposite
    assert own.pop("budget_s") is None  # that of a program unless the number of runs says another
    given = TuneOptions()
    assert own == {name: getattr(given, name) for name in own}
    assert {*options} - {CALLED.get(n, n) for n in NAMES} == {"source", "dim", "form"}


def test_keywords_are_fields() -> None:
    for call in (
        lambda: autofuse.tune(graph(), device="abacus"),
        lambda: autofuse.tune(graph(), TuneOptions(device="abacus")),
        lambda: autofuse.tune(graph(), TuneOptions(device="cpu"), device="abacus"),
    ):
        with pytest.raises(AutofuseError, match="unknown device 'abacus'"):
            call()
    with pytest.raises(TypeError, match="budget"):
        autofuse.tune(graph(), budget=3.0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"budget_s": 0.0}, "positive number of seconds, not 0"),
        ({"budget_s": math.inf}, "positive number of seconds, not inf"),
        ({"cache": "tepid"}, "unknown cache state 'tepid'"),
        ({"search_gap": math.nan}, "the gap must not be negative"),
        ({"runs": 0.0}, "the number of runs must be positive"),
        ({"max_memory": -1}, "cannot be bounded by -1 bytes"),
        ({"seed": -1}, "the seed must not be negative"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_at_once(given: dict[str, Any], words: str) -> None:
    with pytest.raises(AutofuseError, match=words):
        TuneOptions(**given)
