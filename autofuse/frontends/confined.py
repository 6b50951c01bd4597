"""A file read in a process of its own, of little memory and time: it may be anybody's.

What comes back is the text of a graph and plain arrays, never objects.
"""

from __future__ import annotations

import faulthandler
import json
import math
import mmap
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from autofuse.errors import AutofuseError
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType

ReadFile = Callable[[], tuple[Graph, Mapping[str, np.ndarray]]]
# Address space beyond what the process has, and beside so many times what lies in the file and
# beside it; seconds of processor time, and those for each MiB of the file alone.
SPARE_BYTES, TIMES = 2 << 30, 4
SPARE_S, S_PER_MIB = 8, 2
# Wall seconds for each of processor time: machines are shared.
_WALL = 8
_ALIGNED = 64


def confined(path: str, read: ReadFile, spare: int = SPARE_BYTES, seconds: int = SPARE_S) -> tuple[
    Graph, Mapping[str, np.ndarray]
]:  # fmt: skip
    """What `read` gives of a file, called in a process whose memory and time follow from the
    file's size. Raises AutofuseError, one sentence, for what it refuses, and for a file that asks
    for more."""
    if not hasattr(os, "fork") or not Path("/proc/self/statm").exists():
        return read()
    limits = _limits(Path(path), spare, seconds)
    with tempfile.TemporaryFile() as out:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            _serve(out, read, path, limits)
        status = _ended(child, limits[1] * _WALL)
        if os.waitstatus_to_exitcode(status) != 0:
            raise AutofuseError(_died(path, os.waitstatus_to_exitcode(status), limits))
        return _received(out, path)


def _limits(path: Path, spare: int, seconds: int) -> tuple[int, int]:
    """Bytes of address space and seconds of processor time."""
    try:
        own = path.stat().st_size
        beside = sum(e.stat().st_size for e in os.scandir(path.parent) if e.is_file())
    except OSError:  # the reader says it better
        own = beside = 0
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    space = pages * mmap.PAGESIZE + spare + TIMES * own + 2 * beside
    return space, seconds + math.ceil(S_PER_MIB * own / 2**20)


def _serve(out: IO[bytes], read: ReadFile, path: str, limits: tuple[int, int]) -> None:
    """The child: never returns, and says nothing but what it writes to `out`."""
    code = 1
    try:
        space, seconds = limits
        faulthandler.disable()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _limit(resource.RLIMIT_AS, space, space)
        _limit(resource.RLIMIT_CPU, seconds, seconds + 1)
        if "torch" in sys.modules:  # its threads did not come along
            sys.modules["torch"].set_num_threads(1)
        _answer(out, read, path, space)
        out.flush()
        code = 0
    finally:
        os._exit(code)


def _limit(what: int, soft: int, hard: int) -> None:
    """Limits no wider than those that the process has already."""
    _, most = resource.getrlimit(what)
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(what, (soft, hard))


def _answer(out: IO[bytes], read: ReadFile, path: str, space: int) -> None:
    from autofuse.frontends.json.file import dumps

    try:
        graph, arrays = read()
        _send(out, {"graph": dumps(graph)}, arrays)
    except AutofuseError as error:
        _send(out, {"error": str(error)}, {})
    except MemoryError:
        _send(out, {"error": f"{path}: reading it takes more than {space >> 20} MiB"}, {})
    except RecursionError:
        _send(out, {"error": f"{path}: it is nested too deeply"}, {})


def _send(out: IO[bytes], header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    from autofuse.ops.dtypes import from_numpy

    listed = [(n, str(from_numpy(a.dtype)), list(a.shape)) for n, a in arrays.items()]
    text = json.dumps({**header, "arrays": listed}).encode("utf-8", "backslashreplace")
    out.write(len(text).to_bytes(8, "little") + text)
    for array in arrays.values():
        out.write(bytes(-out.tell() % _ALIGNED))
        out.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _ended(child: int, seconds: float) -> int:
    """The status of a child, which is killed after so many wall seconds or with its parent's
    wait."""
    deadline, pause = time.monotonic() + seconds, 0.0005
    try:
        while True:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                return status
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
    except BaseException:  # an interrupt too must not leave a child behind
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise


def _died(path: str, code: int, limits: tuple[int, int]) -> str:
    if -code in (signal.SIGXCPU, signal.SIGKILL):
        return f"{path}: reading it takes more than {limits[1]} s of processor time"
    if code > 0:
        return f"{path}: it cannot be read"
    return f"{path}: reading it was ended by {signal.Signals(-code).name}"


def _received(out: IO[bytes], path: str) -> tuple[Graph, dict[str, np.ndarray]]:
    from autofuse.frontends.json.file import loads

    out.seek(0)
    size = int.from_bytes(out.read(8), "little")
    header = json.loads(out.read(size))
    if "error" in header:
        raise AutofuseError(header["error"])
    at, found = 8 + size, {}
    held = mmap.mmap(out.fileno(), 0, access=mmap.ACCESS_COPY)
    for name, dtype, shape in header["arrays"]:
        kind = DType(dtype).numpy
        at += -at % _ALIGNED
        count = math.prod(shape)
        found[name] = np.frombuffer(held, kind, count, at).reshape(shape) if count else np.empty(
            shape, kind)  # fmt: skip
        at += count * kind.itemsize
    return loads(header["graph"], path), found
