"""`autofuse bundle` puts best plans into one file that is served without a database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from autofuse import __version__
from autofuse.commands.common import (
    DbOption,
    FormatOption,
    example,
    load_workload,
    output_path,
    reported,
    write_whole,
)
from autofuse.commands.database import existing_store
from autofuse.commands.output import Format, duration, emit, note, table
from autofuse.errors import AutofuseError
from autofuse.graph.types import Graph
from autofuse.serving.entries import Entry, Variant
from autofuse.units import bytes_text, plural

app = typer.Typer(
    help="Put best plans into one file that is served without a database.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
FileArg = Annotated[Path, typer.Argument(metavar="FILE", help="The bundle.")]
KeyOption = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="The key that signs it, or checks it."),
]
LeastSerialOption = Annotated[
    int, typer.Option("--serial", metavar="N", min=0, help="Refuse serial numbers below N.")
]
DigestOption = Annotated[
    str | None, typer.Option("--digest", metavar="HEX", help="What its digest has to be.")
]


@app.command("make", epilog=example("autofuse bundle make plans.bundle zoo:softmax:small"))
@reported
def make(
    file: FileArg,
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE]...", help="Graphs (default: all known).")
    ] = None,
    db: DbOption = None,
    key: KeyOption = None,
    binaries: Annotated[
        bool, typer.Option(help="Of SOURCEs: libraries for this processor too.")
    ] = True,
    texts: Annotated[bool, typer.Option("--texts", help="Of SOURCEs: C sources too.")] = False,
    serial: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Its serial number (default: seconds since 1970)."),
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """Write the best plan of each graph on each device that it was tuned on.

    Plans of SOURCEs come with their libraries, so that they are served without a compiler.
    """
    from autofuse.serving.container import MOST_SERIAL
    from autofuse.serving.keys import read_key
    from autofuse.serving.make import Contents, make_bundle

    output_path(file)
    if serial is not None and serial > MOST_SERIAL:
        raise AutofuseError(f"a serial number is {MOST_SERIAL} at most")
    signs = None if key is None else read_key(key)
    if signs is not None:
        signs.sign(b"")  # a key that only checks is told before anything is built
    contents = Contents(__version__, datetime.now(UTC).isoformat(timespec="seconds"))
    graphs = _graphs(sources) if sources else None
    with existing_store(db) as store:
        make_bundle(contents, store, graphs, binaries=binaries, texts=texts)
    now = int(datetime.now(UTC).timestamp())
    data = contents.finished(signs, now if serial is None else serial)
    write_whole(file, lambda path: _write(path, data))
    for line in contents.notes:
        note(line)
    _tell(file, key, None, 0, form, f"written to {file}")


def _graphs(sources: list[str]) -> dict[str, Graph]:
    found: dict[str, Graph] = {}
    for source in sources:
        name, graph = load_workload(source)
        if name in found:
            raise AutofuseError(f"two graphs are called {name}")
        found[name] = graph
    return found


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


@app.command("key", epilog=example("autofuse bundle key plans.key"))
@reported
def key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The key; it must not be there.")],
    pair: Annotated[
        bool, typer.Option("--pair", help="Another key, FILE.pub, checks and cannot sign.")
    ] = False,
) -> None:
    """Make a key that signs bundles, in a file that only you may read.

    Whoever has it can make bundles and check them; a key that others may read is refused. With
    --pair (Ed25519) FILE.pub is for those who only check.
    """
    from autofuse.serving.keys import make_key, make_pair

    if pair:
        public = make_pair(file)
        note(f"written to {file}: keep it to those who may sign; {public} checks, and is no secret")
        return
    make_key(file)
    note(f"written to {file}: keep it to those who may sign")


@app.command("verify", epilog=example("autofuse bundle verify plans.bundle"))
@reported
def verify(
    file: FileArg,
    key: KeyOption = None,
    digest: DigestOption = None,
    serial: LeastSerialOption = 0,
    form: FormatOption = Format.table,
) -> None:
    """Check every byte of a bundle, and its signature if --key is given.

    A bundle that was changed, cut short, signed by another key or is too old is one sentence;
    exit 2.
    """
    _tell(file, key, digest, serial, form, "every byte is as it was made")


def _tell(
    file: Path, key: Path | None, digest: str | None, serial: int, form: Format, said: str
) -> None:
    """Verify a bundle, and say what it is."""
    from autofuse.serving.bundle import open_bundle

    with open_bundle(file, key=key, digest=digest, least_serial=serial) as bundle:
        count = bundle.verify()
        data = {
            "file": str(file),
            "digest": bundle.digest,
            "bytes": file.stat().st_size,
            "workloads": count,
            "signed": bundle.container.signed,
            "authentic": bundle.container.authentic,
            "serial": bundle.container.serial,
        }
    signed = "signed" if data["signed"] else "not signed"
    checked = ", checked" if data["authentic"] else ""
    emit(form, data, [
        f"{plural(count, 'workload')}, {bytes_text(data['bytes'])}, {signed}{checked}: {said}",
        f"digest {data['digest']}, serial number {data['serial']}",
    ])  # fmt: skip


@app.command("show", epilog=example("autofuse bundle show plans.bundle"))
@reported
def show(
    file: FileArg,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One workload, by name or digest.")
    ] = None,
    key: KeyOption = None,
    digest: DigestOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Print what a bundle holds: plans, times, and where they come from."""
    from autofuse.serving.bundle import open_bundle

    with open_bundle(file, key=key, digest=digest) as bundle:
        about = bundle.about()
        if name is None:
            entries = list(bundle.entries())
        else:
            found = bundle.named(name) or bundle.workload(name)
            if found is None:
                raise AutofuseError(f"{file} has no workload '{name}'")
            entries = [found]
    data = {
        "digest": bundle.digest,
        "made": about.get("made"),
        "version": about.get("version"),
        "workloads": [_data(entry) for entry in entries],
    }
    head = f"made {data['made']} by autofuse {data['version']}, digest {data['digest']}"
    columns = ["workload", "device", "model", ">time", ">kernels", "found by", "binary", "plan"]
    rows = [row for entry in entries for row in _rows(entry)]
    emit(form, data, [head, "", *table(columns, rows)])


def _rows(entry: Entry) -> Iterator[list[str]]:
    for v in entry.variants:
        model = dict(v.must).get("model", "")
        yield [
            entry.name or entry.workload, v.device, model, duration(v.timing.get("median_us")),
            str(v.kernels), v.origin, "no" if v.binary is None else "yes", v.plan_digest[:12],
        ]  # fmt: skip


def _data(entry: Entry) -> dict[str, Any]:
    return {
        "workload": entry.workload,
        "name": entry.name,
        "plans": [_plan_data(v) for v in entry.variants],
    }


def _plan_data(variant: Variant) -> dict[str, Any]:
    told = ("device", "plan_digest", "origin", "kernels", "max_rel_error", "code", "version")
    return {name: getattr(variant, name) for name in told} | {
        "must": dict(variant.must),
        "stale": dict(variant.stale),
        "timing": dict(variant.timing),
        "binary": variant.binary is not None,
        "texts": [text for text, _ in variant.texts],
        "plan": variant.candidate,
    }
