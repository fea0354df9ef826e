"""Stages of a command before it has anything to show."""

import sys
import threading
from typing import Self

PATIENCE_S = 1.0
"""Time after which the stage is printed. A command that is refused sooner prints the reason alone. [chosen]"""


class Stage:
    """Prints on stderr what the command does, from `PATIENCE_S` on: the present stage, then each new one."""

    def __init__(self) -> None:
        self._text = ""
        self._lock = threading.Lock()
        self._timer = threading.Timer(PATIENCE_S, self._late)
        self._timer.daemon = True
        self._printing = False

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._text = ""

    def __call__(self, text: str) -> None:
        """Begin a stage; an empty text ends the last one."""
        with self._lock:
            self._text = text
            if self._printing:
                self._print()

    def _late(self) -> None:
        with self._lock:
            self._printing = True
            self._print()

    def _print(self) -> None:
        if self._text:
            print(f"{self._text} …", file=sys.stderr, flush=True)
