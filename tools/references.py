"""Ask pyright's language server for every reference to a name, as an editor does: tools see the whole import graph.

python -m tools.references engines/core/policy.py Plan
"""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import typer

ROOT = Path(__file__).absolute().parents[1]


def references(file: str, name: str) -> Counter[str]:
    """References per file to the class, function or variable `name` that `file` defines; ValueError if it does not."""
    path = ROOT / file
    text = path.read_text()
    found = re.search(rf"^(?:class |def |async def )?({re.escape(name)})\b", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"{file} defines no {name!r} at its top level.")
    line, column = (text.count("\n", 0, found.start(1)), found.start(1) - text.rfind("\n", 0, found.start(1)) - 1)
    command = [str(Path(sys.executable).with_name("pyright-langserver")), "--stdio"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as server:
        root, document = {"uri": ROOT.as_uri(), "name": "root"}, {"uri": path.as_uri()}
        opened = {**document, "languageId": "python", "version": 1, "text": text}
        where = {"textDocument": document, "position": {"line": line, "character": column}}
        try:
            _ask(
                server,
                1,
                "initialize",
                processId=None,
                rootUri=ROOT.as_uri(),
                capabilities={"workspace": {"workspaceFolders": True}},
                workspaceFolders=[root],
            )
            _send(server, method="initialized", params={})
            _send(server, method="textDocument/didOpen", params={"textDocument": opened})
            _wait(server, "source files")  # "Found 900 source files": until then it knows the open file alone
            answer = _ask(server, 2, "textDocument/references", **where, context={"includeDeclaration": True})
        finally:
            server.terminate()
    files = (Path(place["uri"].removeprefix("file://")) for place in answer)
    return Counter(str(each.relative_to(ROOT)) for each in files)


def _wait(server: "subprocess.Popen[bytes]", text: str) -> None:
    while True:
        message = _receive(server)
        if message.get("method") == "window/logMessage" and text in message["params"]["message"]:
            return


def _ask(server: "subprocess.Popen[bytes]", number: int, method: str, **params: Any) -> Any:
    _send(server, id=number, method=method, params=params)
    while True:
        message = _receive(server)
        if message.get("id") == number and "method" not in message:
            if "error" in message:
                raise RuntimeError(message["error"]["message"])
            return message["result"]


def _send(server: "subprocess.Popen[bytes]", **message: Any) -> None:
    assert server.stdin is not None
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    server.stdin.flush()


def _receive(server: "subprocess.Popen[bytes]") -> Any:
    """The next message. The server's own questions are answered with null: there are no settings but the project's."""
    assert server.stdout is not None
    length = 0
    while line := server.stdout.readline().strip():
        key, _, value = line.partition(b":")
        length = int(value) if key.lower() == b"content-length" else length
    message = json.loads(server.stdout.read(length))
    if "method" in message and "id" in message:
        items = (message.get("params") or {}).get("items")
        _send(server, id=message["id"], result=items and [None] * len(items))
    return message


def main(file: str, name: str) -> None:
    """Print the references to NAME, which FILE defines, per file."""
    found = references(file, name)
    for each, count in sorted(found.items()):
        print(f"{count:4d}  {each}")
    print(f"{found.total():4d}  in {len(found)} files")


if __name__ == "__main__":
    typer.run(main)
