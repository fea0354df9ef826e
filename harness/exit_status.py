"""Exit statuses: one number, one meaning, in every command. docs/exit-status.md has the table."""

import os

OK = 0
FAIL = 1
"""The result is not good enough: a missed target, a worse metric, a failed point. Nothing else ends so."""
BAD_INPUT = 2
UNDECIDED = 3
"""No verdict: INCONCLUSIVE, INVALID, or nothing could be measured."""
FAULT = os.EX_SOFTWARE
"""An error in this program (70)."""
SIGNALLED = 128
"""Plus the number of the signal that ended the command: 130 for Ctrl-C, 143 for SIGTERM."""
