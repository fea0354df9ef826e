"""Whatever comes from outside is named by its content: packages by hashes, images and CI actions by digests."""

import re
import subprocess
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tools.licences import HEAD, PAGE, pinned, row
from tools.lock import normal, pins

ROOT = Path(__file__).parents[1]
LOCKS = sorted(path for path in (ROOT / "requirements").glob("*.txt") if path.stem != "torch")
LOCK = re.compile(r"(?:#.*\n)*(?:[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n)+")


def read(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return {normal(package): version for package, version in pins(text).items()}


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_package_of_a_lock_has_a_version_and_hashes(path: Path) -> None:
    text = path.read_text()
    assert LOCK.fullmatch(text)
    assert len(pins(text)) == len({normal(name) for name in pins(text)}) > 10


def test_locks_agree() -> None:
    assert read("live").items() <= read("cpu").items()
    held = pins((ROOT / "requirements" / "cuda.in").read_text())
    assert {normal(name): version for name, version in held.items()}.items() <= read("cuda").items()
    assert read("torch").items() <= read("cuda").items() and not read("torch").keys() & read("cpu").keys()


def test_what_make_installs_is_locked_and_the_audit_reads_every_lock() -> None:
    makefile = (ROOT / "Makefile").read_text()
    installed = re.findall(r"\$\(LOCKED\) requirements/(\w+)\.txt", makefile)
    assert sorted(installed) == sorted(path.stem for path in LOCKS)
    assert re.findall(r"\$\(PIP_INSTALL\) (-r \S+)", makefile) == ["-r requirements/torch.txt"] * 2
    done = subprocess.run(["make", "--dry-run", "audit"], cwd=ROOT, capture_output=True, text=True, check=True)
    (read,) = re.findall(r"for lock in (.+?);", done.stdout)
    assert sorted(read.split()) == [str(path.relative_to(ROOT)) for path in LOCKS]


def test_images_and_actions_are_named_by_digest() -> None:
    images = [*ROOT.glob("Dockerfile*"), ROOT / "compose.yaml"]
    named = [name for path in images for name in re.findall(r"^\s*(?:FROM|image:) (\S+)", path.read_text(), re.M)]
    assert len(named) == 5 and named.count("rehearsal") == 1  # which compose.yaml builds
    assert all(re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", name) for name in named if name != "rehearsal")
    jobs = [path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    used = [line for text in jobs for line in re.findall(r"uses: (.*)", text)]
    assert used and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line) for line in used)


def test_the_page_of_licences_is_current() -> None:
    """Its packages and versions are those of the locks; what is installed of them states what the page says."""
    text, wanted = PAGE.read_text(), pinned()
    assert text.startswith(HEAD)
    lines = text.removeprefix(HEAD).splitlines(keepends=True)
    assert [line.split(" | ")[:2] for line in lines] == [[f"| {name}", wanted[name]] for name in sorted(wanted)]
    here = {normal(dist.name): dist.version.split("+")[0] for dist in distributions()}.items() & wanted.items()
    assert len(here) > 20 and {row(*pin) for pin in here} <= {*lines}, "run python -m tools.licences"
