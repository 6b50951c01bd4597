"""The program with all its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from autofuse import __version__
from autofuse.commands.late import Late, late_group

# Examples work as pasted, one after another.
COMMANDS = {
    "tune": Late(
        "tuning", "tune", "Search for the fastest plan of a graph.",
        "autofuse tune zoo:softmax:small --budget 10",
    ),
    "query": Late(
        "tuning", "query", "Print the best plan known for a graph.",
        "autofuse query zoo:softmax:small",
    ),
    "run": Late(
        "run", "run", "Run a graph with a plan on given or random arrays.",
        "autofuse run zoo:softmax:small --plan best --output y.npz",
    ),
    "show": Late(
        "show", "show", "Print a plan as a tree of kernels.",
        "autofuse show zoo:softmax:small --source --target sm_90:H100",
    ),
    "compare": Late(
        "tuning", "compare", "Time plans of a graph against each other.",
        "autofuse compare zoo:softmax:small --plans unfused,fused,best",
    ),
    "study": Late(
        "study", "study", "Tell what search, rules and launches are worth on one graph.",
        "autofuse study zoo:softmax:small --budget 10 --markdown study.md",
    ),
    "casestudy": Late(
        "casestudy", "casestudy", "Time one program written several ways, under rules and search.",
        "autofuse casestudy cartpole --budget 60 --markdown casestudy.md",
    ),
    "report": Late(
        "report", "report", "Write what tuning bought, as a page or as data.",
        "autofuse report --out report.html",
    ),
    "zoo": Late("info", "zoo", "List the built-in workloads with their sizes.", "autofuse zoo"),
    "info": Late(
        "info", "info", "Print versions, devices, libraries, database, caches.", "autofuse info"
    ),
    "db": Late("database", "app", "Look into the tuning database, or carry it elsewhere."),
    "bundle": Late(
        "bundle", "app", "Put best plans into one file that is served without a database."
    ),
    "fleet": Late("fleet", "app", "Tune many graphs within one budget."),
}  # fmt: skip

# Plain help and usage errors read the same in a terminal, a pipe and a log.
app = typer.Typer(
    cls=late_group(COMMANDS),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"autofuse {__version__}")
        raise typer.Exit


@app.callback()
def callback(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Search for the fastest fusion plan of a dataflow graph.

    A SOURCE is zoo:NAME, zoo:NAME:small, a JSON graph file, an ONNX model, a .pt2 file or
    file.py:factory. The last one runs the file; no other one runs any code that it brings. Results
    go to stdout, progress to stderr. Bad input is one sentence and exit 2.
    """
