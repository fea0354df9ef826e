"""Ctrl-C during a block that must not be interrupted, and during a coroutine."""

import asyncio
import signal
import subprocess
import sys
import threading
import time

import pytest

from harness.clocks.ctrl_c import deferred_ctrl_c, run_until_ctrl_c


def test_ctrl_c_is_raised_at_the_end_of_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt), deferred_ctrl_c():
        signal.raise_signal(signal.SIGINT)
        done.append("the rest of the block")
    assert done and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_cancels_a_coroutine_that_waits_and_closes_the_loop():
    seen = []

    async def waits():
        seen.append(asyncio.get_running_loop())
        threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    begun_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_until_ctrl_c(waits())
    assert time.monotonic() - begun_s < 30  # it did not wait to the end
    assert seen[0].is_closed() and seen[1] == "cancelled"


def test_without_ctrl_c_it_returns_and_raises_as_asyncio_run():
    assert run_until_ctrl_c(asyncio.sleep(0, result=42)) == 42
    with pytest.raises(TimeoutError):
        run_until_ctrl_c(asyncio.wait_for(asyncio.sleep(60), 0))


def test_an_interrupt_that_a_destructor_swallows_comes_again():
    program = """
import signal, time
from harness.clocks.ctrl_c import Ending

ending = Ending()
ending.install()
ending.at_once = False

class Dropped:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)  # where it is raised

try:
    Dropped()
    time.sleep(60)
except KeyboardInterrupt:
    print("came again")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stdout) == (0, "came again\n"), done.stderr
