"""What statements say of their fields, and what follows: names, renaming, the verifier."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from autofuse.kernel.ir.fragment import Collective, Fetch, FragmentProduct, StagedPanel, Vote
from autofuse.kernel.ir.roles import Defines, OwnSym, Reads, Updates
from autofuse.kernel.ir.tile import Join, PanelPlace
from autofuse.kernel.ir.types import (
    Ahead,
    Assign,
    Fold,
    Kernel,
    Let,
    LoadVector,
    Local,
    Origin,
    Panel,
    Param,
    Stmt,
    Store,
    StoreVector,
    Stream,
    TileProduct,
    Transpose,
    Var,
    expressions,
    map_exprs,
    names_read,
    names_written,
    substitute_stmt,
)
from autofuse.kernel.ir.walk import Walk
from autofuse.kernel.passes import verify
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Lit, Load, Sym, call, show
from tests.support.loop_kernels import loop

F32, I64 = DType.F32, DType.I64
i, j, k, n = (Sym(name, I64, 4) for name in "ijkn")
v, w = Sym("v", F32), Sym("w", F32)
TRUE = Lit(True, DType.BOOL)
P, Q, R = Panel("p", i, 4), Panel("q", j, 4), Panel("r", k, 4)
STAGED = StagedPanel("stage", i, P, j, 8, k, 8, F32)
WALK = Walk(((n, ix.lit(3)),), (ix.iadd(n, j),), (TRUE,), 0, "zeros")
PRODUCT = TileProduct(4, 4, k, R, P, Q, F32, True)

# Statement; what it reads, what it changes or makes, and what it evaluates.
SAID: list[tuple[Stmt, str, str, str]] = [
    (Let(v, Load("p", i, F32)), "p i", "v", "p[i]"),
    (Var(v, w), "w", "v", "w"),
    (Assign(v, w), "w", "v", "w"),
    (Local("p", F32, 4), "", "p", ""),
    (Local("p", F32, 4, source=Origin("q", i, 2)), "q i", "p", "i"),
    (Store("p", i, v), "i v", "p", "i v"),
    (Stream("p", i, "q", k), "i q k", "p", "i k"),
    (Ahead("p", i, k, False), "i k", "", "i k"),
    (LoadVector((v, w), "p", i), "p i", "v w", "i"),
    (StoreVector("p", i, (v, w)), "i v w", "p", "i v w"),
    (PRODUCT, "p q r i j k", "r", "k k i j"),
    (replace(PRODUCT, stage="s", there=n), "p q r s i j k n", "r s", "k k i j n"),
    (replace(PRODUCT, walk=WALK), "p q r zeros i j k n", "r",
     "k k i j 3:i64 add(j, n) True:bool True:bool"),
    (replace(PRODUCT, left=replace(P, whole=PanelPlace(n, (n, n), (4, 4)))), "p q r i j k", "r",
     "k k i j"),
    (Join(P, 4, 4, 16, 2, 2, TRUE, j, k, v, "w", "t"), "p i j k", "p v", "i True:bool j k"),
    (Transpose(P, Q, ix.lit(4), k, F32), "q i j k", "p", "i j 4:i64 k"),
    (Fetch(STAGED, TRUE), "p i j k", "stage", "i i j k True:bool"),
    (FragmentProduct("s", 16, 8, n, "f", STAGED, "half", True), "s f stage i j k n", "s",
     "n i i j k"),
    (FragmentProduct("s", 16, 8, n, STAGED, STAGED, "half", True), "s stage i j k n", "s",
     "n i i j k i i j k"),
    (Vote(v, TRUE), "", "v", "True:bool"),
    (loop("lane", n, Store("p", n, v), folds=(Fold(w, "add"),)), "n v", "p", "4:i64"),
]  # fmt: skip


NUMBERED = [f"{type(stmt).__name__}{number}" for number, (stmt, *_) in enumerate(SAID)]


@pytest.mark.parametrize(("stmt", "read", "written", "evaluated"), SAID, ids=NUMBERED)
def test_a_statement_does_what_its_fields_say(
    stmt: Stmt, read: str, written: str, evaluated: str
) -> None:
    assert names_read(stmt) == set(read.split())
    assert names_written(stmt) == set(written.split())
    assert " ".join(map(show, expressions(stmt))) == evaluated
    assert map_exprs(stmt, lambda e: e) == stmt
    renamed = substitute_stmt(stmt, {"i": Sym("other", I64)})
    assert names_read(renamed) == {"other" if name == "i" else name for name in read.split()}


def test_what_tells_of_a_panel_is_renamed_with_it() -> None:
    whole = PanelPlace(i, (i, j), (4, 4))
    renamed = substitute_stmt(replace(PRODUCT, right=replace(Q, whole=whole)), {"i": k})
    assert isinstance(renamed, TileProduct)
    assert renamed.right.whole == PanelPlace(k, (k, j), (4, 4))


@dataclass(frozen=True, slots=True)
class Turn:
    """A part of the toy: an expression with a variable of its own."""

    var: OwnSym
    by: Expr


@dataclass(frozen=True, slots=True)
class Swap(Collective):
    """A statement that no other file knows: numbers of two buffers are exchanged, as often as a
    third one says, and counted."""

    first: Updates
    second: Updates
    times: Reads
    turns: tuple[Turn, ...]
    count: Defines

    def __str__(self) -> str:
        turns = ", ".join(f"{turn.var.name}: {show(turn.by)}" for turn in self.turns)
        return f"let {self.count.name} = swaps of {self.first}, {self.second} ({turns})"


SWAP = Swap("out", "a", "in0", (Turn(j, call("add", i, j)),), v)
PARAMS = (Param("in0", F32, 16, "in"), Param("out", F32, 16, "out"))


def verified(*body: Stmt) -> Kernel:
    return verify(Kernel("k", PARAMS, (loop("grid", i, Local("a", F32, 4), *body),)))


def test_a_new_statement_is_one_class() -> None:
    assert names_read(SWAP) == {"out", "a", "in0", "i", "j"}
    assert names_written(SWAP) == {"out", "a", "v"}
    done = verified(SWAP, Store("out", i, v))
    assert str(done).splitlines()[3] == "    let v = swaps of out, a (j: add(i, j))"
    renamed = substitute_stmt(SWAP, {"i": k})
    assert renamed == replace(SWAP, turns=(Turn(j, call("add", k, j)),))


@pytest.mark.parametrize(
    ("faulty", "reason"),
    [
        ((replace(SWAP, first="in0"),), "in0 is not writable here"),
        ((replace(SWAP, times="b"),), "b is read before it is defined"),
        ((replace(SWAP, turns=(Turn(j, n),)),), "n is read before it is defined"),
        ((SWAP, Store("out", j, v)), "j is read before it is defined"),
        ((SWAP, SWAP), "v is defined twice"),
        ((SWAP, Assign(v, v)), "v is not writable here"),
    ],
)
def test_a_new_statement_is_verified(faulty: tuple[Stmt, ...], reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        verified(*faulty)
