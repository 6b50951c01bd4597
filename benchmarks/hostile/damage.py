"""How a sound file is damaged: its bytes, or what its format says of them."""

from __future__ import annotations

import copy
import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    2**31 - 1,
    2**31,
    2**40,
    2**63,
    -(2**63) - 1,
    10**40,
    0.5,
    -0.0,
    1e300,
    1e-320,
)
TEXTS = ("", "x", "%0", ":", "a\nb", "\ud800", "\0", "NaN", "Infinity", "../../etc/passwd",
         "x" * 3000, "f32[2147483647,2147483647]", "f32[]", "input", "loop", "while",
         "/dev/zero", "\u202e")  # fmt: skip
# What names in models mean something.
WORDS = ("y", "h", "Conv", "Loop", "Expand", "ConstantOfShape", "Resize", "Range", "LSTM", "Cast",
         "axes", "shape", "local", "ai.onnx.ml", "?")  # fmt: skip
KEYS = ("name", "inputs", "extra", "label", "low")
OBJECTS: tuple[Any, ...] = (None, True, {}, [], [[]], [0] * 3000, {"graph": {}}, {"literal": {}},
                            [2**40, 2**40], {"float": "NaN"})  # fmt: skip
INSERTED = (
    b"\xff",
    b"\xed\xa0\x80",
    b"\0" * 64,
    b"[" * 9000,
    b'{"a":' * 9000,
    b"9" * 9000,
    b"1e9999",
    b"\xc3",
    b"\xef\xbb\xbf",
)


def damaged_bytes(rng: random.Random, raw: bytes) -> bytes:
    """Bits flipped, a part left out, doubled, or something between."""
    at, end = sorted(rng.randrange(len(raw) + 1) for _ in range(2))
    match rng.randrange(6):
        case 0 | 1:
            found = bytearray(raw)
            for _ in range(rng.choice((1, 1, 3, 20)) if found else 0):
                found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
            return bytes(found)
        case 2:
            return raw[:at]
        case 3:
            return raw[:at] + raw[end:]
        case 4:
            return raw[:end] + raw[at:]
        case _:
            return raw[:at] + rng.choice(INSERTED) + raw[at:]


def junk(rng: random.Random) -> Any:
    return copy.deepcopy(rng.choice(rng.choice((NUMBERS, TEXTS, OBJECTS))))


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    stack = [tree]
    while stack:
        at = stack.pop()
        for key in at if isinstance(at, dict) else range(len(at)):
            yield at, key
            if isinstance(at[key], dict | list):
                stack.append(at[key])


def damaged_tree(rng: random.Random, tree: Any, junk: Callable[[random.Random], Any] = junk) -> Any:
    """JSON data with a few entries dropped, exchanged for `junk`, doubled or nudged."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 2, 5))):
        found = list(_places(tree)) if isinstance(tree, dict | list) else []
        if not found:
            return tree
        at, key = rng.choice(found)
        _changed(rng, at, key, [place for place, _ in found], junk)
    return tree


def _changed(
    rng: random.Random, at: Any, key: Any, places: list[Any], junk: Callable[[random.Random], Any]
) -> None:
    """One entry of a container changed, maybe to a copy of one of `places`."""
    match rng.randrange(4):
        case 0:
            del at[key]
        case 1:
            at[key] = junk(rng)
        case 2 if isinstance(at, list):
            at.insert(rng.randrange(len(at) + 1), copy.deepcopy(at[key]))
        case 2:
            at[rng.choice(KEYS)] = at[key]
        case _ if isinstance(at[key], int | float) and not isinstance(at[key], bool):
            at[key] = rng.choice((at[key] + 1, -at[key], at[key] * 2**20, *NUMBERS))
        case _:
            at[key] = rng.choice((copy.deepcopy(rng.choice(places)), str(at[key])[:-1]))


def damaged_json(rng: random.Random, raw: bytes) -> bytes:
    """A JSON text, or lines of them, edited by its grammar."""
    lines = raw.decode().split("\n")
    if not _is_json(raw):
        k = rng.randrange(len(lines))
        if lines[k].strip() and rng.random() < 0.8:
            lines[k] = _written(damaged_tree(rng, json.loads(lines[k])))
        else:
            lines.insert(rng.randrange(len(lines)), lines.pop(k))
        return "\n".join(lines).encode("utf-8", "surrogatepass")
    return _written(damaged_tree(rng, json.loads(raw))).encode("utf-8", "surrogatepass")


def _written(tree: Any) -> str:
    text = json.dumps(tree)
    # A key that is there twice, now and then.
    return text.replace('{"', '{"name": 1, "', 1) if len(text) % 17 == 0 else text


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except ValueError:
        return False
    return True


def damaged_message(rng: random.Random, message: Any) -> bytes:
    """A protobuf message with fields gone, doubled or filled with junk."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        _edit(rng, rng.choice(list(_messages(message))))
    return bytes(message.SerializeToString())


def _messages(message: Any) -> Iterator[Any]:
    """A message and all within it."""
    stack = [message]
    while stack:
        at = stack.pop()
        yield at
        for field, value in at.ListFields():
            if field.message_type is not None:
                stack += list(value) if hasattr(value, "__len__") else [value]


def _edit(rng: random.Random, at: Any) -> None:
    fields = at.ListFields()
    if not fields:
        return
    field, value = rng.choice(fields)
    several = hasattr(value, "append") or hasattr(value, "add")
    try:
        if rng.random() < 0.2:
            at.ClearField(field.name)
        elif not several and field.message_type is None:
            setattr(at, field.name, _like(rng, value))
        elif several and len(value):
            _edit_one(rng, value, field.message_type is None)
    except (ValueError, TypeError):
        pass  # a number that the field cannot hold


def _edit_one(rng: random.Random, values: Any, plain: bool) -> None:
    k = rng.randrange(len(values))
    if rng.random() < 0.3:
        del values[k]
    elif plain:
        values[k] = _like(rng, values[k])
    else:
        values.add().CopyFrom(values[k])


def _like(rng: random.Random, old: Any) -> Any:
    if isinstance(old, bytes):
        return damaged_bytes(rng, old)
    if isinstance(old, str):
        return rng.choice((*TEXTS, *WORDS, old[:-1], old + "_"))
    return rng.choice((0, 1, -1, 7, 2**31 - 1, 2**40, 2**62, -(2**63), 0.5, float("nan")))


def damaged_zip(rng: random.Random, raw: bytes) -> bytes:
    """An archive with a member damaged, renamed, doubled, emptied, compressed or gone."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        held = [(name, archive.read(name)) for name in archive.namelist()]
    k = rng.randrange(len(held))
    name, data = held[k]
    packing = zipfile.ZIP_STORED
    match rng.randrange(6):
        case 0:
            del held[k]
        case 1:
            held[k] = (name, damaged_bytes(rng, data))
        case 2:
            held[k] = (rng.choice(("../" * 9 + "x", "/etc/x", "", name + "x", "m/x" * 999)), data)
        case 3:
            packing = zipfile.ZIP_DEFLATED
            held[k] = (name, bytes(1 << 24))
        case 4:
            held.append((name, data))
        case _:
            held = [(n, damaged_json(rng, d) if n.endswith(".json") else d) for n, d in held]
    return _zipped(held, packing)


def _zipped(held: Sequence[tuple[str, bytes]], packing: int) -> bytes:
    out = io.BytesIO()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(out, "w", packing) as made:
            for each, content in held:
                made.writestr(each or "_", content)
    return out.getvalue()


def damaged_pages(rng: random.Random, raw: bytes) -> bytes:
    """A database with bytes of a page changed: its header, its cells or pointers to other pages."""
    found, page = bytearray(raw), 4096
    at = rng.randrange(max(len(raw) // page, 1)) * page
    for _ in range(rng.choice((1, 2, 8))):
        place = at + rng.randrange(rng.choice((12, 100, page)))
        if place < len(found):
            found[place] = rng.choice((0, 1, 5, 13, 0x7F, 0xFF, rng.randrange(256)))
    return bytes(found)
