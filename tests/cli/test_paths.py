"""A path that the operating system refuses is a usage error that names it, whichever command and option it is for."""

import ctypes
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rehearsal
from harness.exit_status import BAD_INPUT
from tests.cli.conftest import LLAMA, small
from tests.conftest import Rehearse
from tests.reports import served

LONG = "n" * 300
THERE = {
    "closed/x": "a folder that must not be searched",
    "inner": "a folder whose files must not be read",
    LONG: "a name that is too long",
}
"""For commands that count all points of the cards where there is nothing."""
READ = {"locked": "a file that must not be read", "file/x": "a component that is a file", "loop": "a link to itself"}
WRITTEN = {
    "fixed/new": "a folder that must not be changed",
    "fixed/a/b": "a folder below one that must not be changed",
    "closed/new": "a folder that must not be searched",
    "file/x": "a component that is a file",
    LONG: "a name that is too long",
    "/proc/x": "a file system that takes no files",
}
INPUTS = """
run {}
run e.yaml --dry-run --profile {}
run e.yaml --dry-run --set workload=file --set path={}
run bench --dry-run --set workload=burstgpt --set path={}
run bench --dry-run --set workload=sharegpt --set path={}
run bench --dry-run --set workload=speech --set path={}
run bench --dry-run --set model={}
run bench --dry-run --set deployment={}
run bench --dry-run --vllm {}
find {} --slo continuity>=95%
find bench --slo continuity>=95% --dry-run --profile {}
live ws://127.0.0.1:9/v1 --dry-run --audio {}
live ws://127.0.0.1:9/v1 --resume --out {}
serve liveserve --profile {}
serve liveserve --set model={}
fidelity --measured-runs {}
fidelity --device cpu --profile {}
report {}
compare {} runs
compare runs {}
nightly --device virtual --against {}
trace stat {}
trace show {}
trace plot {} --out pictures
trace edit {} --out t.parquet
trace convert {} --to jsonl --out t.jsonl
trace perfetto {}
trace from-run {} --out t.parquet
trace fidelity --data {} --out pictures
trace make file --set path={} --out t.parquet
data speech --from {} --out sp
profile --from {} --model llama_3_1_8b --gpu h100
profile --device cpu --quick --model {}
model {}
"""
OUTPUTS = """
run e.yaml --out {}
find e.yaml --slo continuity>=95% --out {}
live ws://127.0.0.1:9/v1 --sessions 1 --duration 1 --dry-run --out {}
live ws://127.0.0.1:9/v1 --sessions 1 --duration 1 --out {}
fidelity --device cpu --quick --out {}
nightly --device virtual --quick --out {}
trace make voice --set sessions=2 --out {}
trace edit good.parquet --out {}
trace convert good.parquet --to jsonl --out {}
trace plot good.parquet --out {}
trace from-run RECORD --out {}
trace perfetto RECORD --out {}
data speech --from dir --out {}
data fetch burstgpt/BurstGPT_3.csv --out {}
model config.json --out {}
profile --device cpu --quick --model llama_tiny --out {}
"""


@contextmanager
def as_an_ordinary_user() -> Iterator[None]:
    """Take the superuser's right to read and write every file (CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH) away."""
    libc = ctypes.CDLL(None)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of the calls, this process
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, twice
    assert libc.capget(header, sets) == 0
    before = sets[0]
    sets[0] = before & ~0b110
    assert libc.capset(header, sets) == 0
    try:
        yield
    finally:
        sets[0] = before
        assert libc.capset(header, sets) == 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("paths")
    for folder in ("closed", "fixed", "inner", "dir"):
        (place / folder).mkdir()
    for name in ("file", "locked", "closed/x", "fixed/x", "dir/x"):
        (place / name).write_text("x")
    for name in ("experiment.json", "config.json", "traces.json", "a.wav", "manifest.json"):
        (place / "inner" / name).write_text("{}")
        (place / "inner" / name).chmod(0)
    (place / "loop").symlink_to("loop")
    (place / "e.yaml").write_text("name: x\nworkload: voice\nengines: [liveserve]\nset: {sessions: 2}\n")
    (place / "config.json").write_text(json.dumps(LLAMA))
    rehearsal.trace("voice", {"sessions": 3}, out=place / "good.parquet")
    served.serve(place / "runs", small(grid={"c": [8]}, seeds=[0]))
    for name, mode in (("locked", 0), ("closed", 0), ("fixed", 0o555)):
        (place / name).chmod(mode)
    yield place
    for name in ("closed", "fixed"):
        (place / name).chmod(0o755)


@pytest.mark.parametrize(
    ("command", "paths"),
    [(line, READ | THERE) for line in INPUTS.strip().splitlines()]
    + [("claims liveserve --results {}", THERE)]
    + [(line, WRITTEN) for line in OUTPUTS.strip().splitlines()],
)
def test_it_is_named_in_one_sentence(
    command: str, paths: dict[str, str], place: Path, rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    (record,) = place.glob("runs/points/*/manifest.json") if "RECORD" in command else [place / "none"]
    for path, what in paths.items():
        arguments = shlex.split(command.format(path).replace("RECORD", str(record.parent)))
        with as_an_ordinary_user():
            status, out, err = rehearse(*arguments)
        assert status == BAD_INPUT, (what, out, err)
        (line,) = [line for line in err.splitlines() if line.startswith("rehearse: ")]
        assert err.endswith(f"{line}\n") and line.endswith((".", "?")), (what, err)
        assert path[:50] in line and "Error" not in line, (what, line)
