"""The commands of `rehearse`, and the sentences about their errors.

Each command imports what it needs when it runs, so that `--help` answers at once; only a run loads vLLM, in its
workers.
"""

import errno
import logging
import os
import sys
import sysconfig
import warnings
from functools import cache
from importlib import import_module
from pathlib import Path

import typer

from harness.exit_status import BAD_INPUT, OK
from reports.cli.settings import Command, Group, flag
from reports.cli.streams import flush_or_drop
from workloads.atomic_file import is_full
from workloads.errors import REMOVED, UserError, printable, unknown
from workloads.optional import DISTRIBUTION

OWN_PACKAGES = ("engines", "harness", "rehearsal", "reports", "workloads")
SENTENCE = 4000
"""Characters that a message has at most. [chosen]"""

EPILOG = """
**Start here**

`rehearse run bench --quick` measures part of the default bench in a minute.

`rehearse run bench --set c=16 --set p=0,0.7` measures part of its grid.

`rehearse live ws://HOST:PORT/v1/realtime --sessions 8` calls a server.

`rehearse replay FILE --url http://HOST:PORT/v1` sends what a log records, at its times.

`rehearse list engines liveserve` shows an engine and its settings.
"""
COMMANDS = {
    "Measure": ("run", "live", "replay", "find", "serve", "fidelity", "nightly", "doctor"),
    "Results": ("report", "compare", "list"),
    "Papers": ("claims", "page"),
    "Data": ("trace", "data", "profile", "model"),
}
"""Group of the help -> names of its commands. Each is in a module of its name, `list` in `listing`."""
NAMES = tuple(name for names in COMMANDS.values() for name in names)


@cache
def build(names: tuple[str, ...]) -> typer.Typer:
    """Return the program with these commands, whose modules are imported."""
    app = typer.Typer(
        name="rehearse",
        cls=Group,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        epilog=EPILOG,
    )
    app.callback(invoke_without_command=True)(_rehearse)
    for group, commands in COMMANDS.items():
        for name in commands:
            if name in names:
                module = import_module(f"reports.cli.{'listing' if name == 'list' else name}")
                if hasattr(module, "app"):
                    app.add_typer(module.app, name=name, rich_help_panel=group)
                else:
                    command = getattr(module, "list_" if name == "list" else name)
                    app.command(name, rich_help_panel=group, cls=Command)(command)
    for what in REMOVED:
        if what.startswith("command "):
            anything = {"allow_extra_args": True, "ignore_unknown_options": True}
            app.command(what.removeprefix("command "), hidden=True, context_settings=anything)(_removed)
    return app


def _removed(context: typer.Context) -> None:
    raise unknown("command", str(context.info_name), ())


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"rehearse {version(DISTRIBUTION)}")
        raise typer.Exit


def _rehearse(
    context: typer.Context,
    version: bool = flag("--version", "Print the version and exit.", callback=_version, is_eager=True),
) -> None:
    """Replay real-time LLM workloads against serving engines and see what a user would have felt."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run() -> int:
    """Run the command of `sys.argv` and return its exit status. Errors of the user are a sentence on stderr; other
    errors, and KeyboardInterrupt, are raised."""
    _silence_libraries()
    try:
        status = _command()
        sys.stdout.flush()
        return status
    except OSError as error:
        message = _full(error) if is_full(error) else _about_path(error)
        if message is None:
            raise
    except UserError as error:
        message = str(error)
    except typer.TyperException as error:
        message = " ".join(error.format_message().split())
        context = getattr(error, "ctx", None)
        command = "rehearse" if context is None else context.command_path
        message = f"{message[:1].lower()}{message[1:].rstrip('.')}; see {command} --help."
        message = REMOVED.get(f"option {getattr(error, 'option_name', '')}", message)
    flush_or_drop()
    print(f"rehearse: {printable(message, SENTENCE)}", file=sys.stderr)
    return BAD_INPUT


def _command() -> int:
    """Do what `app()` does, which would turn a KeyboardInterrupt into a status and a closed pipe into status 1."""
    if "_REHEARSE_COMPLETE" in os.environ:  # a shell completes a name
        try:
            build(NAMES)(prog_name="rehearse")
        except SystemExit as end:
            return int(end.code or OK)
    words = sys.argv[1:]
    command = typer.main.get_command(build((words[0],) if words and words[0] in NAMES else NAMES))
    try:
        with command.make_context("rehearse", words) as context:
            return command.invoke(context) or OK
    except typer.Exit as end:
        return end.exit_code


def _full(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    again = "again with --resume" if sys.argv[1:2] == ["live"] else "again"
    return f"{error.strerror}{where}; make room and run the same command {again}: finished points stay."


def _about_path(error: OSError) -> str | None:
    """Return the sentence about a path that the system refuses; None for other errors and for our own files."""
    if not isinstance(error.filename, str | bytes):
        return None
    named = os.fsdecode(error.filename)
    if any(Path(named).absolute().is_relative_to(folder) for folder in _ours()):
        return None
    fix = "give another path"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        fix = "allow it, or give another path"
    return f"{printable(named)}: {error.strerror}; {fix}."


def _ours() -> list[Path]:
    """The folders with the code of this program and of its libraries."""
    root = Path(__file__).parents[2]
    packages = [root / name for name in OWN_PACKAGES]
    return [*packages, *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib"))]


def _silence_libraries() -> None:
    """Hide the warnings of libraries. They are for developers of this program, who ask for them by `python -W`. Errors
    are shown."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    if logging.lastResort is not None:  # shows messages of loggers without a handler
        logging.lastResort.addFilter(_concerns_user)


def _concerns_user(message: logging.LogRecord) -> bool:
    """Errors, and what we ourselves warn of, as of a damaged record."""
    return message.levelno >= logging.ERROR or message.name.partition(".")[0] in OWN_PACKAGES
