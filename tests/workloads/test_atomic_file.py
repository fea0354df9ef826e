"""What a killed process has left of a file goes when the file is written again; what another one writes stays."""

import subprocess
import sys
from pathlib import Path

from workloads.atomic_file import replacing

WRITE_AND_DIE = """
import os, sys
from pathlib import Path
from workloads.atomic_file import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), 9)
"""


def test_the_draft_of_a_killed_process_goes_with_the_next_write(tmp_path: Path) -> None:
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
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {
        "a.svg": b"whole",
        "a": b"other",
        "b.svg": b"other",
    }


def test_two_writers_at_a_time_leave_each_other_s_draft(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    with replacing(path) as first:
        first.write(b"first")
        with replacing(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second" and len(list(tmp_path.iterdir())) == 2
    assert path.read_bytes() == b"first" and list(tmp_path.iterdir()) == [path]


def test_a_link_in_place_of_a_draft_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    link = tmp_path / ".tmp-a.svg-0123abcd"
    link.symlink_to("mine")
    with replacing(tmp_path / "a.svg") as file:
        file.write(b"whole")
    assert link.is_symlink() and (tmp_path / "mine").read_text() == "kept"
