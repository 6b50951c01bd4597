"""`autofuse info` tells what this machine has, and `autofuse zoo` which workloads there are."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Any

from autofuse import __version__
from autofuse.commands.common import DbOption, FormatOption, reported
from autofuse.commands.output import Format, emit, table
from autofuse.errors import AutofuseError
from autofuse.graph.types import Graph
from autofuse.units import bytes_text, plural

if TYPE_CHECKING:
    from autofuse.backends.toolchain import Compiler

_PACKAGES = (
    "numpy", "scipy", "optuna", "sqlalchemy", "alembic", "networkx", "rich", "typer", "jinja2",
    "ml_dtypes", "jax", "torch", "cupy-cuda12x", "cupy-cuda13x", "onednn-cpu-gomp",
    "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12",
)  # fmt: skip


@reported
def info(db: DbOption = None, form: FormatOption = Format.table) -> None:
    """Print versions, devices, libraries, database, caches."""
    data = {
        "autofuse": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "devices": {"cpu": _cpu(), "cuda": _cuda()},
        "libraries": _libraries(),
        "compiler": _compiler(),
        "cxx_compiler": _cxx_compiler(),
        "database": _database(db),
        "cache": _cache(),
    }
    emit(form, data, _info_lines(data))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> dict[str, Any]:
    from autofuse.backends.machine import (
        cpu_model,
        instruction_sets,
        isa_digest,
        last_level_cache_bytes,
    )
    from autofuse.limits import usable_cores, usable_memory_bytes

    return {
        "usable": _compiler()["found"],
        "model": cpu_model(),
        "cores": usable_cores(),
        "memory_bytes": usable_memory_bytes(),
        "last_level_cache_bytes": last_level_cache_bytes(),
        "isa": isa_digest(),
        "instruction_sets": list(instruction_sets()),
    }


def _cuda() -> dict[str, Any]:
    from autofuse.backends.cuda.driver import ready, running_target

    try:
        ready()
        target = running_target()
    except AutofuseError as error:
        return {"usable": False, "reason": str(error)}
    return {
        "usable": True,
        "model": target.name,
        "arch": target.arch,
        "multiprocessors": target.sms,
        "last_level_cache_bytes": target.l2_bytes,
    }


def _libraries() -> dict[str, Any]:
    """What competes with kernels: on device cpu for products, convolutions, transforms and
    factorisations, on CUDA for products with what follows them."""
    from autofuse.backends.cpu.blas import blas_name
    from autofuse.backends.cpu.lapack import lapack_name
    from autofuse.backends.cpu.onednn import onednn
    from autofuse.backends.cpu.pocketfft import pocketfft_name
    from autofuse.backends.cuda.blaslt import cublaslt_name
    from autofuse.backends.cuda.maps import tensor_map_name

    named: dict[str, Callable[[], str]] = {
        "blas": blas_name, "onednn": lambda: onednn().name, "fft": pocketfft_name,
        "lapack": lapack_name,         "cublaslt": cublaslt_name, "tensor_maps": tensor_map_name,
    }  # fmt: skip
    return {library: _library(name) for library, name in named.items()}


def _library(name: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"found": True, "version": name()}
    except AutofuseError as error:
        return {"found": False, "reason": str(error)}


def _compiler() -> dict[str, Any]:
    from autofuse.backends.toolchain import find_compiler

    return _found(find_compiler)


def _cxx_compiler() -> dict[str, Any]:
    """The one that device cuda-emulated needs."""
    from autofuse.backends.toolchain import find_cxx

    return _found(find_cxx)


def _found(find: Callable[[], Compiler]) -> dict[str, Any]:
    try:
        found = find()
    except AutofuseError as error:
        return {"found": False, "reason": str(error)}
    return {"found": True, "command": " ".join(found.command), "version": found.version}


def _database(url: str | None) -> dict[str, Any]:
    """Where the database is; it is not opened, so that looking never creates one."""
    from tuning_db.engine import database_url, url_name
    from tuning_db.sqlite import sqlite_path

    parsed = database_url(url)
    path = sqlite_path(parsed)
    found: dict[str, Any] = {"name": url_name(parsed)}
    if path is not None:
        found["exists"] = path.exists()
        found["bytes"] = path.stat().st_size if path.is_file() else None
    return found


def _cache() -> dict[str, Any]:
    from autofuse.backends.cache import BuildCache

    try:
        cache = BuildCache()
        return {"directory": str(cache.root), "bytes": cache.size_bytes(), "cap": cache.cap_bytes}
    except AutofuseError as error:
        return {"directory": None, "reason": str(error)}


def _info_lines(data: dict[str, Any]) -> Iterator[str]:
    cpu, compiler, database, cache = (
        data["devices"]["cpu"], data["compiler"], data["database"], data["cache"],
    )  # fmt: skip
    versions = ", ".join(f"{n} {v}" for n, v in data["packages"].items() if v is not None)
    absent = ", ".join(n for n, v in data["packages"].items() if v is None)
    yield f"autofuse  {data['autofuse']}, Python {data['python']}, {data['system']}"
    yield f"packages  {versions}" + (f"; not installed: {absent}" if absent else "")
    llc, memory = bytes_text(cpu["last_level_cache_bytes"]), cpu["memory_bytes"]
    held = "" if memory is None else f", {bytes_text(memory)} memory"
    usable = "" if cpu["usable"] else ", not usable without a C compiler"
    yield f"cpu       {cpu['model']}, {plural(cpu['cores'], 'core')}, {llc} cache{held}{usable}"
    yield f"          {' '.join(cpu['instruction_sets'])}"
    cuda = data["devices"]["cuda"]
    yield "cuda      " + (
        f"{cuda['model']} ({cuda['arch']}), {plural(cuda['multiprocessors'], 'multiprocessor')}"
        if cuda["usable"]
        else cuda["reason"]
    )
    yield f"libraries {'; '.join(map(_said, data['libraries'].values()))}"
    yield f"compiler  {_said(compiler)}"
    yield f"c++       {_said(data['cxx_compiler'])}"
    state = ""
    if "exists" in database:
        held = bytes_text(database["bytes"] or 0)
        state = f" ({held})" if database["exists"] else " (not there yet)"
    yield f"database  {database['name']}{state}"
    if cache["directory"] is None:
        yield f"cache     {cache['reason']}"
    else:
        held = f"{bytes_text(cache['bytes'])} of {bytes_text(cache['cap'])}"
        yield f"cache     {cache['directory']} ({held})"


def _said(found: dict[str, Any]) -> str:
    """A compiler or a library, or why there is none."""
    if not found["found"]:
        return str(found["reason"])
    return f"{found['command']}: {found['version']}" if "command" in found else found["version"]


@reported
def zoo(form: FormatOption = Format.table) -> None:
    """List the built-in workloads with their sizes."""
    from autofuse.zoo import ZOO

    rows: list[dict[str, Any]] = [
        {
            "source": f"zoo:{entry.name}" + ("" if chosen == "default" else f":{chosen}"),
            "size": chosen,
            **_graph_facts(entry.builder(chosen)),
            "description": entry.description,
        }
        for entry in ZOO.values()
        for chosen in entry.sizes
    ]
    head = ["source", "nodes", ">inputs", ">outputs", "description"]
    emit(form, {"workloads": rows}, table(head, map(_zoo_cells, rows)))


def _zoo_cells(row: dict[str, Any]) -> list[str]:
    inside = f" + {row['loop_nodes']} in loops" if row["loop_nodes"] else ""
    return [
        row["source"],
        f"{row['nodes']}{inside}",
        bytes_text(row["input_bytes"]),
        bytes_text(row["output_bytes"]),
        row["description"] if row["size"] == "default" else "",
    ]


def _graph_facts(graph: Graph) -> dict[str, int]:
    return {
        "nodes": len(graph.nodes),
        "loop_nodes": _loop_nodes(graph),
        "input_bytes": sum(t.nbytes for t in graph.input_types),
        "output_bytes": sum(t.nbytes for t in graph.output_types),
    }


def _loop_nodes(graph: Graph) -> int:
    """Nodes of loop bodies, at any depth."""
    bodies = [v for node in graph.nodes for _, v in node.attrs if isinstance(v, Graph)]
    return sum(len(body.nodes) + _loop_nodes(body) for body in bodies)
