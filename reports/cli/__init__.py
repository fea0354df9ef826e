"""The command `rehearse`.

It is part of `reports` and not of `harness`, because imports go one way (reports -> harness -> engines -> workloads)
and the command line needs the cards and the report. Each command imports what it needs when it runs, so that `--help`
answers at once; only a run loads vLLM, in its workers.
"""

import logging
import os
import signal
import sys
import traceback
import warnings

import typer

from reports.cli import (
    claims,
    compare,
    data,
    doctor,
    fidelity,
    find,
    listing,
    live,
    model,
    nightly,
    profile,
    proxy,
    report,
    run,
    serve,
    trace,
)
from reports.cli.settings import Command, Group, flag
from workloads.atomic_file import is_full
from workloads.errors import REMOVED, UserError, printable, unknown
from workloads.optional import DISTRIBUTION

OK, FAILED, BAD_INPUT, FAULT = 0, 1, 2, os.EX_SOFTWARE

SENTENCE = 4000
"""Characters that a message has at most. [chosen]"""

app = typer.Typer(
    name="rehearse",
    cls=Group,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    epilog="""
**Start here**

`rehearse run bench --quick` measures part of the default bench in a minute.

`rehearse run bench --set c=16 --set p=0,0.7` measures part of its grid.

`rehearse live ws://HOST:PORT/v1/realtime --sessions 8` calls a server.

`rehearse list engines liveserve` shows an engine and its settings.
""",
)
COMMANDS = {
    "Measure": {
        "run": run.run,
        "live": live.live,
        "find": find.find,
        "serve": serve.serve,
        "proxy": proxy.proxy,
        "fidelity": fidelity.fidelity,
        "nightly": nightly.nightly,
        "doctor": doctor.doctor,
    },
    "Results": {"report": report.report, "compare": compare.compare, "list": listing.list_},
    "Papers": {"claims": claims.claims, "artifact": claims.artifact},
    "Data": {"trace": trace.app, "data": data.app, "profile": profile.profile, "model": model.model},
}
"""Group of the help -> name -> command, or several below one name."""

for _group, _commands in COMMANDS.items():
    for _name, _command in _commands.items():
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name, rich_help_panel=_group)
        else:
            app.command(_name, rich_help_panel=_group, cls=Command)(_command)


def _removed(context: typer.Context) -> None:
    raise unknown("command", str(context.info_name), ())


for _name in REMOVED:
    if _name.startswith("command "):
        _anything = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(_name.removeprefix("command "), hidden=True, context_settings=_anything)(_removed)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"rehearse {version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _rehearse(
    context: typer.Context,
    version: bool = flag("--version", "Print the version and exit.", callback=_version, is_eager=True),
) -> None:
    """Replay real-time LLM workloads against serving engines and see what a user would have felt."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Exit status: 0 fine, 1 a point failed, 2 bad input or a full disk (one sentence), 70 a fault of this program,
    130 or 143 stopped."""
    _silence_libraries()
    try:
        _main()
    except Exception as error:
        if isinstance(error, typer.Abort) and isinstance(error.__cause__, KeyboardInterrupt):
            sys.exit(128 + signal.SIGINT)
        traceback.print_exc()
        print(
            "rehearse: this is a fault of rehearse itself, and no verdict; please report it.", file=sys.stderr
        )
        sys.exit(FAULT)


def _main() -> None:
    try:
        status = app(standalone_mode=False, prog_name="rehearse") or OK
        sys.stdout.flush()
        sys.exit(status)
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader has closed the pipe, as `| head` does
            _drop_output()
            sys.exit(FAILED)
        if not is_full(error):
            raise
        where = f" ({error.filename})" if error.filename else ""
        message = (
            f"{error.strerror}{where}; make room and run the same command again: what is finished stays."
        )
        _drop_output()
    except UserError as error:
        message = str(error)
    except typer.TyperException as error:
        message = " ".join(error.format_message().split())
        context = getattr(error, "ctx", None)
        command = "rehearse" if context is None else context.command_path
        message = f"{message[:1].lower()}{message[1:].rstrip('.')}; see {command} --help."
        message = REMOVED.get(f"option {getattr(error, 'option_name', '')}", message)
    print(f"rehearse: {printable(message, SENTENCE)}", file=sys.stderr)
    sys.exit(BAD_INPUT)


def _silence_libraries() -> None:
    """Hide the warnings of libraries. They are for developers of this program, who ask for them by `python -W`. Errors
    are shown."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    if logging.lastResort is not None:  # shows messages of loggers without a handler
        logging.lastResort.addFilter(_concerns_user)


def _concerns_user(message: logging.LogRecord) -> bool:
    """Errors, and what we ourselves warn of, as of a damaged record."""
    ours = ("engines", "harness", "rehearsal", "reports", "workloads")
    return message.levelno >= logging.ERROR or message.name.partition(".")[0] in ours


def _drop_output() -> None:
    """Print the buffered output or discard it: Python would otherwise try again at exit, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
