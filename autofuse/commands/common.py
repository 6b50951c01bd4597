"""What all commands share: options, errors as one sentence, exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec

import typer

from autofuse.commands.output import Format, StdoutClosed, flush, note
from autofuse.devices import DeviceKind, devices_help, present_device
from autofuse.errors import AutofuseError
from autofuse.plan.arithmetic import DEFAULT_MATH

BAD_INPUT = 2
NOT_FOUND = 4
INTERRUPTED = 130
PIPE_CLOSED = 141
MAX_SEED = 2**63 - 1

P = ParamSpec("P")

SourceArg = Annotated[
    str,
    typer.Argument(metavar="SOURCE", help="zoo:NAME, zoo:NAME:small, a JSON or an ONNX file."),
]
DimOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=SIZE",
        help="What a model leaves open: batch=8, axes=0,2.",
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option("--device", metavar="NAME", help=devices_help()),
]
TargetOption = Annotated[
    str,
    typer.Option(
        "--target", metavar="ARCH:NAME", help="The GPU that an emulated device stands for."
    ),
]
DbOption = Annotated[
    str | None,
    typer.Option("--db", metavar="URL", help="Tuning database: a file or a SQLAlchemy URL."),
]
NoSimplifyOption = Annotated[
    bool, typer.Option("--no-simplify", help="Keep the program as it is written.")
]
MathOption = Annotated[
    str,
    typer.Option("--math", metavar="NAME", help="Arithmetic: default or relaxed."),
]
FormatOption = Annotated[Format, typer.Option("--format", help="How results are printed.")]
SeedOption = Annotated[
    int,
    typer.Option("--seed", metavar="N", min=0, max=MAX_SEED, help="Seed of all random choices."),
]


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose errors become one sentence on stderr and an exit code."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            flush()
        except AutofuseError as error:
            fail(str(error))
        except StdoutClosed:
            _forget_stdout()
            raise typer.Exit(PIPE_CLOSED) from None
        except OSError as error:
            fail(os_sentence(error))
        except MemoryError:
            fail("what was asked for takes more memory than there is")
        except KeyboardInterrupt:
            note("interrupted")
            raise typer.Exit(INTERRUPTED) from None

    return run


def example(text: str) -> str:
    """What ends the help of a command: a command line that works as pasted."""
    return f"Example: {text}"


def fail(message: str) -> NoReturn:
    note(" ".join(message.split()))
    raise typer.Exit(BAD_INPUT)


def os_sentence(error: OSError) -> str:
    """What the system refused, and for which file."""
    reason = error.strerror or str(error) or type(error).__name__
    return reason if error.filename is None else f"{error.filename}: {reason}"


def _forget_stdout() -> None:
    """Nobody reads any more: keep Python from complaining about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def asked_device(name: str, target: str, math: str = DEFAULT_MATH) -> DeviceKind:
    """The device that --device, --target and --math mean; what should be known about the choice
    goes to stderr. Raises AutofuseError for one that is not here, or that nobody knows."""
    return present_device(name, target, note, math)


def load_workload(source: str, dims: list[str] | None = None) -> tuple[str, Any]:
    """Name and graph of a SOURCE argument."""
    found = sized_workload(source, dims)
    return found.name, found.graph


def sized_workload(source: str, dims: list[str] | None = None) -> Any:
    """As `load_workload`, with the arrays that come with the graph (a `sources.GivenSource`)."""
    from autofuse.sources import read_source

    return read_source(source, dict(map(_size_of, dims or [])))


def _size_of(text: str) -> tuple[str, list[int]]:
    """`batch=8`, or `axes=0,2`. Raises AutofuseError for anything else."""
    name, equals, numbers = text.rpartition("=")
    try:
        found = [int(each) for each in numbers.split(",")]
    except ValueError:
        found = []
    if not (equals and name and found):
        raise AutofuseError(f"--dim takes NAME=SIZE, such as batch=8, not '{text}'")
    return name, found


def output_path(path: Path) -> Path:
    """`path`, if a file can be written there. Raises AutofuseError before any work is done."""
    if path.is_dir():
        raise AutofuseError(f"cannot write {path}: it is a directory")
    if not path.parent.is_dir():
        raise AutofuseError(f"cannot write {path}: its directory does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise AutofuseError(f"cannot write {path}: permission denied")
    return path


def write_text(path: Path, text: str) -> None:
    """As `write_whole`, of text."""
    write_whole(path, lambda part: _fill(part, text))


def _fill(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file beside `path`, then put it there: readers never see half a file."""
    if path.exists() and not path.is_file():  # a pipe or /dev/stdout has no neighbour
        write(path)
        return
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    try:
        write(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
