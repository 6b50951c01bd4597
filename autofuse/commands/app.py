"""The program with all its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from autofuse import __version__
from autofuse.commands import bundle, database, fleet
from autofuse.commands.casestudy import casestudy
from autofuse.commands.common import example
from autofuse.commands.info import info, zoo
from autofuse.commands.report import report
from autofuse.commands.run import run
from autofuse.commands.show import show
from autofuse.commands.tuning import compare, query, tune

# Plain help and usage errors read the same in a terminal, a pipe and a log.
app = typer.Typer(
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

    A SOURCE is zoo:NAME, zoo:NAME:small or a JSON graph file. Results go to stdout, progress to
    stderr. Bad input is one sentence and exit 2.
    """


# Each ends its command's help; they work as pasted, one after another.
EXAMPLES = {
    zoo: "autofuse zoo",
    tune: "autofuse tune zoo:softmax:small --budget 10",
    query: "autofuse query zoo:softmax:small",
    run: "autofuse run zoo:softmax:small --plan best --output y.npz",
    show: "autofuse show zoo:softmax:small --source --target sm_90:H100",
    compare: "autofuse compare zoo:softmax:small --plans unfused,fused,best",
    casestudy: "autofuse casestudy cartpole --budget 60 --markdown study.md",
    report: "autofuse report --out report.html",
    info: "autofuse info",
}
for command in (tune, query, run, show, compare, casestudy, report, zoo, info):
    app.command(epilog=example(EXAMPLES[command]))(command)
app.add_typer(database.app, name="db")
app.add_typer(bundle.app, name="bundle")
app.add_typer(fleet.app, name="fleet")
