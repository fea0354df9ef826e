"""The command `rehearse`, and the one boundary between its commands and the shell: signals, errors, exit status.

It is part of `reports` and not of `harness`, because imports go one way (reports -> harness -> engines -> workloads)
and the command line needs the cards and the report. The commands are in `reports.cli.app`, which is imported behind the
boundary, as Ctrl-C may come before.
"""

import os
import signal
import sys
import threading
import traceback

from harness.clocks.ctrl_c import Ending
from harness.exit_status import FAULT, SIGNALLED
from reports.cli.streams import flush_or_drop, open_streams


def main() -> None:
    """Run the command of `sys.argv` and exit with a status of `harness.exit_status`."""
    ending = Ending()
    ending.install()
    open_streams()
    try:
        status = _status(ending)
    except KeyboardInterrupt as stopped:
        print(str(stopped) or "Stopped.", file=sys.stderr)
        status = SIGNALLED + signal.SIGINT
    ending.at_once = True  # nothing is left that a signal could spoil
    flush_or_drop()
    if ending.status is not None:  # whatever a library has made of the interrupt
        if any(not each.daemon for each in threading.enumerate() if each is not threading.main_thread()):
            os._exit(ending.status)  # Python would wait for these threads
        status = ending.status
    sys.exit(status)


def _status(ending: Ending) -> int:
    """Return the exit status of the command. KeyboardInterrupt after a signal."""
    try:
        from reports.cli.app import run

        ending.at_once = False
        return run()
    except KeyboardInterrupt:
        raise
    except BaseException:  # as asyncio's CancelledError, or SystemExit of a library
        if ending.number is not None:
            raise KeyboardInterrupt from None
        traceback.print_exc()
        print("rehearse: this is a fault of rehearse itself, and no verdict; please report it.", file=sys.stderr)
        return FAULT
