import os
import subprocess
import sys
from pathlib import Path

import pytest

from workloads.atomic_file import STDOUT, output, own_folder, replacing
from workloads.errors import UserError


def test_an_interrupted_write_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["f"]


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, elsewhere = tmp_path / "victim", tmp_path / "elsewhere"
    victim.write_text("mine")
    elsewhere.mkdir()
    monkeypatch.setattr("secrets.token_hex", lambda _: "guessed")
    draft = tmp_path / ".tmp-a.html-guessed"
    draft.symlink_to(victim)
    with pytest.raises(FileExistsError), replacing(tmp_path / "a.html"):
        pass
    assert victim.read_text() == "mine" and not (tmp_path / "a.html").exists()
    monkeypatch.undo()
    with replacing(tmp_path / "a.html") as file:  # which removes drafts that another writer left
        file.write(b"whole")
    assert victim.read_text() == "mine" and draft.is_symlink()
    (tmp_path / "figures").symlink_to(elsewhere)
    with pytest.raises(UserError, match=r"figures is a link, and results are never written through one"):
        own_folder(tmp_path / "figures")


def test_the_target_of_a_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("f")
    for text in (b"first", b"second"):  # at first there is no such file
        with output(tmp_path / "link") as file:
            file.write(text)
        assert (tmp_path / "f").read_bytes() == text and (tmp_path / "link").is_symlink()


NO_FILES = {"pipe": os.mkfifo, "folder": os.mkdir, "link to a device": lambda path: path.symlink_to("/dev/full")}


@pytest.mark.parametrize("kind", ["device", *NO_FILES])
def test_a_pipe_a_folder_and_a_device_are_not_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "there"
    if kind == "device":
        path = Path("/dev/full")
    else:
        NO_FILES[kind](path)
    before = os.lstat(path).st_mode
    with pytest.raises(UserError, match="name a file to write, or - for standard output"), output(path):
        pass
    assert os.lstat(path).st_mode == before


def test_a_dash_is_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    with output(STDOUT) as file:
        file.write(b"\xffbytes")
    assert capfdbinary.readouterr().out == b"\xffbytes" and not os.listdir(tmp_path)


WRITE_AND_DIE = """
import os, sys
from pathlib import Path
from workloads.atomic_file import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), 9)
"""


def test_the_draft_of_a_killed_process_is_removed_by_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    assert subprocess.run([sys.executable, "-c", WRITE_AND_DIE, path]).returncode == -9
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".tmp-a.svg-") and left.read_bytes() == b"half"
    for other in ("b.svg", "a"):  # whose drafts have other names
        with replacing(tmp_path / other) as file:
            file.write(b"other")
        assert left.exists()
    with replacing(path) as file:
        file.write(b"whole")
    found = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert found == {"a.svg": b"whole", "a": b"other", "b.svg": b"other"}


def test_two_writers_of_one_file_keep_each_other_s_draft(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    with replacing(path) as first:
        first.write(b"first")
        with replacing(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second" and len(list(tmp_path.iterdir())) == 2
    assert path.read_bytes() == b"first" and list(tmp_path.iterdir()) == [path]
