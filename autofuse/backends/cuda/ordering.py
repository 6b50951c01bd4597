"""The launches of one call in order, and which of them must stay in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from autofuse.backends.cuda.actions import Argument
from autofuse.backends.cuda.program import (
    Action,
    Fft,
    Gemm,
    KernelLaunch,
    LoopAction,
    Matmul,
    WhileAction,
    moved,
)
from autofuse.ops.dtypes import DType
from autofuse.plan.program.dependencies import Access, ByteRange, dependencies
from autofuse.plan.program.schedule import Copy, Ref


@dataclass(frozen=True, slots=True)
class Hosted:
    """A loop that the host ends, on given iterations of the loops around it, by level."""

    loop: WhileAction
    trips: tuple[tuple[int, int], ...]


OneLaunch = KernelLaunch | Gemm | Matmul | Fft | Copy | Hosted
# What is shared beside the program's buffers: the workspaces of cuFFT and cuBLAS, and the room on
# the device for blocks that wait for each other.
_FFT_ROOM = ByteRange(("fft", 0), 0, 1)
_WORKSPACE, _ROOM = ByteRange(("blas", 0), 0, 1), ByteRange(("room", 0), 0, 1)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a launch stands: `after` which others. With `early` it is a kernel that comes after
    one other kernel only, and both are made for the second to start before the first is over."""

    after: tuple[int, ...]
    early: bool = False


def every(actions: Iterable[Action]) -> Iterator[Action]:
    """All actions, those of loop bodies included."""
    for action in actions:
        yield action
        if isinstance(action, LoopAction | WhileAction):
            yield from every(chain(*action.turns))


def singles(
    actions: Iterable[Action], trips: Mapping[int, int] | None = None
) -> Iterator[OneLaunch]:
    """The launches of all iterations, one after another, each at its own place."""
    known = trips or {}
    for action in actions:
        match action:
            case KernelLaunch() | Gemm() | Matmul() | Fft():
                yield _at(action, known)
            case Copy(source, target, nbytes):
                if nbytes:
                    yield Copy(moved(source, known), moved(target, known), nbytes)
            case LoopAction(trip, level, turns):
                for t in range(trip):
                    yield from singles(turns[t % len(turns)], {**known, level: t})
            case WhileAction():
                yield Hosted(action, tuple(known.items()))


def like(product: Matmul) -> Matmul:
    """What a product shares with those that differ in where their arrays are."""
    return product.at(lambda _: Ref(""))


def _at(action: KernelLaunch | Gemm | Matmul | Fft, known: Mapping[int, int]) -> OneLaunch:
    """What is launched in one iteration."""
    match action:
        case KernelLaunch():
            places = tuple(replace(a, ref=moved(a.ref, known)) for a in action.arguments)
            return replace(action, arguments=places)
        case Gemm(a=a, b=b, c=c):
            a, b, c = (moved(ref, known) for ref in (a, b, c))
            return replace(action, a=a, b=b, c=c)
        case Matmul():
            return action.at(lambda ref: moved(ref, known))
        case Fft(source=source, target=target):
            return replace(action, source=moved(source, known), target=moved(target, known))


def access(single: OneLaunch) -> Access:
    """The bytes that a launch touches."""
    match single:
        case KernelLaunch(geometry=shape, arguments=arguments):
            return _of_kernel(arguments, shape.cooperative)
        case Gemm(form, dtype, a, b, c):
            left, right, out = (
                _span(ref, size, dtype) for ref, size in zip((a, b, c), form.sizes, strict=True)
            )
            return Access((left, right), (out, _WORKSPACE))
        case Matmul():
            return _of_matmul(single)
        case Fft(_, dtype, source, target):
            read, written = single.sizes
            # Equal transforms share a plan, and all the room that a plan works in.
            made = (_span(target, written, dtype), _FFT_ROOM)
            return Access((_span(source, read, dtype),), made)
        case Copy(source, target, nbytes):
            return Access((_bytes(source, nbytes),), (_bytes(target, nbytes),))
        case Hosted():
            raise AssertionError("a program with loops that the host ends is no graph")


def _of_kernel(arguments: Sequence[Argument], cooperative: bool) -> Access:
    spans = [(_span(a.ref, a.size, a.dtype), a.written) for a in arguments]
    room = (_ROOM,) if cooperative else ()
    reads, writes = (tuple(s for s, w in spans if w is kind) for kind in (False, True))
    return Access(reads, (*writes, *room))


def _of_matmul(single: Matmul) -> Access:
    left, right, out = single.form.sizes
    sizes = {"bias": single.form.n, "residual": out, "aux": out}
    beside = {
        name: _span(ref, sizes[name], single.dtype)
        for name, ref in single.beside
        if ref is not None
    }
    made = [_span(single.c, out, single.dtype), _WORKSPACE]
    if single.writes_aux:
        made.append(beside.pop("aux"))
    read = (_span(single.a, left, single.dtype), _span(single.b, right, single.dtype))
    return Access((*read, *beside.values()), tuple(made))


def places(launches: Sequence[OneLaunch]) -> tuple[Place, ...]:
    """Where each of these launches stands when those that share nothing may overlap."""
    order = dependencies([access(single) for single in launches])
    return tuple(
        Place(after, len(after) == 1 and _early(launches[n]) and _early(launches[after[0]]))
        for n, after in enumerate(order)
    )


def _early(single: OneLaunch) -> bool:
    return isinstance(single, KernelLaunch) and single.geometry.early


def _span(ref: Ref, size: int, dtype: DType) -> ByteRange:
    return _bytes(ref, size * dtype.itemsize)


def _bytes(ref: Ref, nbytes: int) -> ByteRange:
    return ByteRange((ref.space, ref.index), ref.offset, ref.offset + nbytes)
