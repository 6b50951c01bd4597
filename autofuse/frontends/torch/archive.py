"""What a file of torch.export.save holds, made harmless before torch reads it.

PyTorch's own reader runs code: it unpickles arguments and weights, evaluates sizes as expressions,
finds what nodes call by walking through its modules, imports what trees of arguments name, and
makes Python of the names of nodes. So torch is given a copy that holds nothing but what was
checked here; the rest is refused by name.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from autofuse.errors import AutofuseError
from autofuse.frontends.torch.types import torch_module

# What torch writes; none of them is near these.
_MOST_MEMBERS, _MOST_JSON, _DEEPEST = 100_000, 1 << 28, 100
_SAMPLES = re.compile(r"data/sample_inputs/[^/]+\.pt")
_LEGACY = re.compile(r"data/(weights|constants)/[^/]+\.pt")
_CONFIG = re.compile(r"data/(?:weights|constants)/[^/]+_config\.json")
_MODEL = re.compile(r"models/[^/]+\.json")
# Tensors as they lie, and the few words that say how the archive is made.
_PLAIN = re.compile(
    r"data/(?:weights|constants)/(?:weight|tensor)_\d+|archive_format|archive_version|"
    r"\.data/version|version|byteorder|\.data/serialization_id"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*|")
_OPERATOR = re.compile(r"torch\.ops\.(aten|prims)\.([A-Za-z0-9_]+)\.([A-Za-z0-9_]+)")
# Graphs in graphs that are written out before anything is asked of them.
_HIGHER = "torch.ops.higher_order.wrap_with_"
_INLINED = (f"{_HIGHER}set_grad_enabled", f"{_HIGHER}autocast")
_PICKS = "_operator.getitem"
# Operators that read or write files.
_NOT_PURE = ("from_file",)
_TREES = (None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict",
          "torch.fx.immutable_collections.immutable_list",
          "torch.fx.immutable_collections.immutable_dict")  # fmt: skip


class ArchiveError(AutofuseError):
    """A file that holds something else than weights and operators."""


def harmless_copy(path: str | Path) -> io.BytesIO:
    """An archive like that in `path`, of nothing but what was checked. Raises ArchiveError, a
    phrase without the file's name."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _copied(archive, _members(archive))
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RecursionError) as error:
        raise ArchiveError(f"it is no archive of PyTorch: {error}") from error


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The members without the name that all of them begin with."""
    found: dict[str, zipfile.ZipInfo] = {}
    infos = archive.infolist()
    if len(infos) > _MOST_MEMBERS:
        raise ArchiveError(f"it has {len(infos)} members, more than {_MOST_MEMBERS}")
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ArchiveError(f"{_short(info.filename)} is compressed, which torch never does")
        name = info.filename.partition("/")[2]
        if name in found:
            raise ArchiveError(f"it has two members {_short(name)}")
        found[name] = info
    if not any(_MODEL.fullmatch(name) for name in found):
        raise ArchiveError("it has no program (files of PyTorch before 2.8 have to be saved again)")
    return found


def _copied(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]) -> io.BytesIO:
    out = io.BytesIO()
    unread = _unread(archive, members)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as copy:
        for name, info in members.items():
            change = next((c for pattern, c in _CHECKS if pattern.fullmatch(name)), None)
            if change is not None:
                data = b"" if name in unread else change(archive.read(info))
                copy.writestr(f"model/{name}", data)
            elif not name.startswith("extra/"):
                raise ArchiveError(f"it has {_short(name)}, which is none of a program")
    out.seek(0)
    return out


def _unread(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]) -> set[str]:
    """Members that only parameters lie in: they may be gigabytes, and say nothing of a graph."""
    parameters, others = set[str](), set[str]()
    for name, info in members.items():
        if _CONFIG.fullmatch(name):
            for _, entry in _entries(archive.read(info)):
                where = f"{name.rpartition('/')[0]}/{entry.get('path_name')}"
                (parameters if entry.get("is_param") is True else others).add(where)
    return parameters - others


# Members, one check each


def _as_it_is(data: bytes) -> bytes:
    return data


def _repickled(what: str) -> Callable[[bytes], bytes]:
    """A check of a pickle: of weights and plain containers alone, written anew."""

    def check(data: bytes) -> bytes:
        if not data:
            return data
        torch = torch_module()
        try:
            held = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
        except Exception as error:  # torch and unpickling raise whatever they like
            raise ArchiveError(f"its {what} hold more than weights: {_global(error)}") from error
        out = io.BytesIO()
        torch.save(held, out)
        return out.getvalue()

    return check


def _global(error: Exception) -> str:
    """What unpickling would have called, where torch says it."""
    found = re.search(r"GLOBAL (\S+)|Unsupported (?:global|class|operand)\S* ?(\S+)", str(error))
    return next((g for g in found.groups() if g), "?") if found else type(error).__name__


def _config(data: bytes) -> bytes:
    for name, entry in _entries(data):
        place = entry.get("path_name")
        plain = isinstance(place, str) and re.fullmatch(r"(?:weight|tensor)_\d+", place)
        if entry.get("use_pickle") is not False or not plain:
            raise ArchiveError(f"'{name[:80]}' is pickled, and could run code: tensors are not")
        _check_tree(entry)
    return data


def _entries(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    config = _parsed(data)
    entries = config.get("config") if isinstance(config, dict) else None
    if not isinstance(entries, dict) or not all(isinstance(e, dict) for e in entries.values()):
        raise ArchiveError("its list of weights is damaged")
    yield from entries.items()


def _model(data: bytes) -> bytes:
    tree = _parsed(data)
    if not isinstance(tree, dict):
        raise ArchiveError("its program is damaged")
    # Conditions in Python, which nothing asks for here.
    tree["guards_code"] = []
    _check_tree(tree)
    return json.dumps(tree).encode()


_CHECKS: tuple[tuple[re.Pattern[str], Callable[[bytes], bytes]], ...] = (
    (_SAMPLES, _repickled("sample inputs")),
    (_LEGACY, _repickled("weights")),
    (_CONFIG, _config),
    (_MODEL, _model),
    (_PLAIN, _as_it_is),
)


def _parsed(data: bytes) -> Any:
    if len(data) > _MOST_JSON:
        raise ArchiveError(f"its program is longer than {_MOST_JSON} bytes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ArchiveError(f"its program is damaged: {error}") from error


# A program


def _check_tree(tree: Any) -> None:
    """Refuses whatever torch would run, wherever it is; what is said of a node beside its
    operator is dropped."""
    stack: list[tuple[Any, int]] = [(tree, 0)]
    while stack:
        at, depth = stack.pop()
        if depth > _DEEPEST:
            raise ArchiveError("its program is nested too deeply")
        if isinstance(at, list):
            stack += [(each, depth + 1) for each in at]
        elif isinstance(at, dict):
            if "target" in at and "metadata" in at:
                at["metadata"] = {}
            for key, value in at.items():
                _check_pair(key, value)
                stack.append((value, depth + 1))


def _check_pair(key: str, value: Any) -> None:
    if key in ("target", "as_operator"):
        _check_operator(value)
    elif key in ("in_spec", "out_spec"):
        _check_spec(value)
    elif key == "as_expr":
        raise ArchiveError("it has sizes that are left open: export it with static shapes")
    elif key == "as_custom_obj":
        raise ArchiveError("it holds an object of a class of its own, which could run code")
    elif key.endswith("values") and isinstance(value, dict):
        for name in value:
            _check_name(name)
    elif key == "name":
        _check_name(value)


def _check_name(value: Any) -> None:
    if value is not None and not (isinstance(value, str) and _NAME.fullmatch(value)):
        raise ArchiveError(f"{_short(value)} is no name of a value")


def _check_operator(value: Any) -> None:
    if value in (_PICKS, *_INLINED):
        return
    found = _OPERATOR.fullmatch(value) if isinstance(value, str) else None
    if found is not None and found[2] not in _NOT_PURE:
        at: Any = torch_module().ops
        for name in found.groups():
            at = getattr(at, name, None)
        if isinstance(at, torch_module()._ops.OpOverload):
            return
    raise ArchiveError(f"a node calls {_short(value)}, which is no operator of PyTorch")


def _check_spec(value: Any) -> None:
    """The tree of a program's arguments or results, as text: plain containers alone."""
    refused = ArchiveError("its arguments are in containers that are not PyTorch's own")
    if not isinstance(value, str) or "__enum__" in value:
        raise refused
    if not value:
        return
    stack = [_parsed(value.encode("utf-8", "replace"))]
    for _ in range(_MOST_MEMBERS):
        if not stack:
            return
        at = stack.pop()
        if isinstance(at, list):
            stack += at
        elif isinstance(at, dict):
            if at.get("type") not in _TREES:
                raise refused
            stack.append(at.get("children_spec"))
    raise refused


def _short(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
