"""The image of the live client is made of what `make live` installs."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def installed(text: str) -> list[str]:
    """Return the arguments of each `pip install` without its flags for less output."""
    found = re.findall(r"pip install (.+)", text.replace("\\\n", " "))
    return [
        " ".join(w for w in line.split() if w not in ("--quiet", "--disable-pip-version-check"))
        for line in found
    ]


def test_it_installs_what_make_live_installs_from_files_that_docker_sees() -> None:
    rule = (ROOT / "Makefile").read_text().partition("\n.venv-live/.ready:")[2].partition("\n\n")[0]
    image = (ROOT / "Dockerfile.live").read_text()
    assert installed(image) == installed(rule) and len(installed(image)) == 1
    (constraint,) = re.findall(r"--constraint (\S+)", image)
    assert {f"!{constraint}", "!pyproject.toml"} <= set((ROOT / ".dockerignore").read_text().split())


def test_it_has_neither_vllm_nor_torch() -> None:
    extra = re.search(r"^live = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert extra is not None and not re.search("vllm|torch", extra[1])
