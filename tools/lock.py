"""Give the pinned packages of lock files the hashes of their files: `python -m tools.lock requirements/*.txt`.

A file has a comment, and a line `NAME==VERSION` for each package. The hashes are those of every file that CPython 3.11
or 3.12 can take, on any platform: the wheels and the source distribution, as the package index states them to uv
(`pip install uv`), which has to be on the PATH.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PYTHON = "3.11.14"
"""The oldest that every pinned package supports."""

WHEEL = re.compile(
    r"-(?:(?:[^-]+\.)?(?:py3(?:[0-9]|1[0-2])?|cp311|cp312)(?:\.[^-]+)?-[^-]+|cp3(?:[2-9]|1[0-2])-abi3)-[^-]+\.whl$"
)
"""End of the names of the wheels that are taken: Python and ABI, any platform."""
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([A-Za-z0-9.!+]+)", re.MULTILINE)


def pins(text: str) -> dict[str, str]:
    """Return the version of each package of a lock file."""
    return dict(PIN.findall(text))


def normal(name: str) -> str:
    """Return the name of a package as the index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def hashes(pinned: dict[str, str]) -> dict[str, set[str]]:
    """Return the SHA-256 of the files of each package, by its normal name. CalledProcessError if the index lacks a
    package."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = Path(folder, "asked.txt"), Path(folder, "pylock.toml")
        asked.write_text("".join(f"{name}=={version}\n" for name, version in pinned.items()))
        command = ["uv", "pip", "compile", "--quiet", "--no-deps", "--no-config", "--universal"]
        command += ["--python-version", PYTHON, "--format", "pylock.toml", "--output-file", answer, asked]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        packages = tomllib.loads(answer.read_text())["packages"]
    return {package["name"]: {file["hashes"]["sha256"] for file in _files(package)} for package in packages}


def _files(package: dict[str, Any]) -> list[dict[str, Any]]:
    wheels = [wheel for wheel in package.get("wheels", []) if WHEEL.search(wheel["url"])]
    return wheels + ([package["sdist"]] if "sdist" in package else [])


def locked(text: str) -> str:
    """Return a lock file with its comment, its pins and their hashes."""
    pinned = pins(text)
    known = hashes(pinned)
    comment = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    return comment + "".join(_line(name, version, known[normal(name)]) for name, version in pinned.items())


def _line(name: str, version: str, known: Iterable[str]) -> str:
    sums = [f"--hash=sha256:{each}" for each in sorted(known)]
    return " \\\n    ".join([f"{name}=={version}", *sums]) + "\n"


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        text = locked(path.read_text())
        path.write_text(text)
        print(f"{path}: {len(pins(text))} packages, {text.count('--hash=')} hashes")


if __name__ == "__main__":
    main()
