"""A page as Chromium lays it out: what is broader than its place at a width, and how it looks.

Chromium is Debian's; where there is none, tests that need it are skipped. It is spoken to over its DevTools protocol,
as its own command line has no window narrower than 500 px.
"""

import itertools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.request import urlopen

from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

CUT = """(() => {
  const wide = document.documentElement.clientWidth;
  const name = e => e.tagName.toLowerCase() + (e.id ? '#' + e.id : '') + '.' + e.className + ': ' +
    e.textContent.trim().slice(0, 60);
  const scrolls = e => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
  const cut = [...document.querySelectorAll('*')].filter(e => e.clientWidth && !e.closest('svg')
    && e.scrollWidth > e.clientWidth + 1 && (scrolls(e) || getComputedStyle(e).overflowX === 'hidden'));
  return {page: document.documentElement.scrollWidth - wide, cut: cut.map(name)};
})()"""
"""By how much the page is broader than the window, and every element whose content it does not show at once."""


class Browser:
    """A headless Chromium with one page."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._ids = socket, itertools.count(1)

    def open(self, page: Path | str, width: int, scheme: Literal["light", "dark"] = "light") -> None:
        """Load a file or a URL at a width in px."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._call("Page.enable")
        self._call("Page.navigate", url=page.as_uri() if isinstance(page, Path) else page)
        until = time.monotonic() + 60
        while self.evaluate("document.readyState") != "complete" and time.monotonic() < until:
            time.sleep(0.05)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        return self._call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            said = json.loads(self._socket.recv(timeout=60))
            if said.get("id") == number:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']}")
                return said["result"]


@contextmanager
def browser() -> Iterator[Browser]:
    """Ends with its processes."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        options += ["--remote-debugging-port=0", f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            [CHROMIUM, *options, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            with connect(_page_address(Path(profile)), max_size=None, proxy=None) as socket:
                yield Browser(socket)
        finally:
            process.terminate()
            process.wait(20)


def _page_address(profile: Path) -> str:
    told, until = profile / "DevToolsActivePort", time.monotonic() + 60
    while time.monotonic() < until:
        if told.is_file() and (lines := told.read_text().splitlines()):
            pages = json.load(urlopen(f"http://127.0.0.1:{lines[0]}/json/list", timeout=20))
            for page in pages:
                if page["type"] == "page":
                    return page["webSocketDebuggerUrl"]
        time.sleep(0.1)
    raise TimeoutError("Chromium did not start")
