"""Data sets over HTTP: a local server stands for the hub and the release pages, with their redirects and breaks."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.builders import refused, web_server
from workloads.errors import UserError
from workloads.files import hub
from workloads.files.hub import Dataset, RemoteFile

constants = pytest.importorskip("huggingface_hub.constants", reason="needs the extra data")
CONTENT = bytes(range(256)) * 4000
COMMIT = "a" * 40


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process load vLLM, which keeps off the hub."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


class Hub:
    """Serves `contents` by path; sends at most `breaks_after` bytes of a response, then hangs up."""

    def __init__(self) -> None:
        self.address = ""
        self.contents: dict[str, bytes] = {}
        self.breaks_after: int | None = None
        self.ranges: list[str | None] = []

    def get(self, request: BaseHTTPRequestHandler) -> None:
        request.protocol_version, request.close_connection = "HTTP/1.1", True
        if request.path.startswith("/moved"):
            self.respond(request, 302, Location=f"{self.address}{request.path.removeprefix('/moved')}")
            return
        wanted = request.headers.get("Range")
        self.ranges.append(wanted)
        content = self.contents.get(request.path)
        if content is None:
            request.send_error(404)
            return
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        span = {"Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"} if begin else {}
        self.respond(request, 206 if begin else 200, **{"Content-Length": str(len(content) - begin)}, **span)
        request.wfile.write(content[begin:][: self.breaks_after])

    def respond(self, request: BaseHTTPRequestHandler, status: int, **headers: str) -> None:
        request.send_response(status)
        for name, value in ({"Content-Length": "0"} | headers).items():
            request.send_header(name, value)
        request.end_headers()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    pages = Hub()
    with web_server(lambda request: pages.get(request)) as address:
        pages.address = f"http://{address}"
        yield pages


def remote(address: str, content: bytes = CONTENT, path: str = "data/rows.csv") -> Dataset:
    file = RemoteFile(name=path, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    return Dataset(summary="rows", licence="none", url=address, revision="v1", files=(file,))


def test_a_file_is_fetched_once_and_then_only_checked(server: Hub, tmp_path: Path) -> None:
    server.contents["/v1/data/rows.csv"] = CONTENT
    (path,) = hub.fetch(remote(f"{server.address}/moved"), tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "rows.csv"
    assert path.read_bytes() == CONTENT
    hub.fetch(remote(server.address), path.parent)
    assert len(server.ranges) == 1
    path.write_bytes(CONTENT[:-1])  # damaged here
    hub.fetch(remote(server.address), path.parent)
    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in path.parent.iterdir()] == ["rows.csv"]


def test_a_broken_download_goes_on_where_it_stopped(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "rows.csv.part").write_bytes(CONTENT[:100_000])
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 100_000)
    server.contents["/v1/data/rows.csv"] = CONTENT
    server.breaks_after = 500_000
    hub.fetch(remote(server.address), tmp_path)
    assert server.ranges == ["bytes=100000-", "bytes=600000-"]
    assert (tmp_path / "rows.csv").read_bytes() == CONTENT


def test_a_file_with_another_checksum_is_refused(server: Hub, tmp_path: Path) -> None:
    server.contents["/v1/data/rows.csv"] = CONTENT[::-1]
    with pytest.raises(UserError, match=r"has sha256 [0-9a-f]{16}\.\.\. and not .* so it is not used\.$"):
        hub.fetch(remote(server.address), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_download_says_where_to_put_the_file(server: Hub, tmp_path: Path) -> None:
    with refused("404") as error:
        hub.fetch(remote(server.address), tmp_path)
    assert str(error.value).startswith(f"cannot fetch {server.address}/v1/data/rows.csv (")
    assert str(error.value).endswith(f"or bring the file to {tmp_path / 'rows.csv'}.")
    (tmp_path / "file").write_text("")
    with refused("choose a writable folder"):
        hub.fetch(remote(server.address), tmp_path / "file")


FETCH = """
import json, sys
from pathlib import Path
from workloads.files import hub
print(hub.fetch(hub.Dataset(**json.loads(sys.argv[1])), Path(sys.argv[2]))[0])
"""


def test_a_hub_repository_is_asked_at_its_pinned_revision(server: Hub, tmp_path: Path) -> None:
    """As a user with a mirror has it: HF_ENDPOINT in the environment."""
    server.contents["/datasets/some/where/resolve/abc123/clean/0000.parquet"] = CONTENT
    place = {"url": None, "repository": "some/where", "revision": "abc123"}
    fields = remote("", path="clean/0000.parquet").model_dump() | place
    # An engine imported by another test has set itself off line.
    own = {"HF_ENDPOINT": server.address, "NO_PROXY": "127.0.0.1", "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-c", FETCH, json.dumps(fields), str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).read_bytes() == CONTENT


def test_every_data_set_has_a_licence_and_a_pinned_revision() -> None:
    names = ["dureader", "multinews", "sharegpt_90k", "streamingbench_real", "vcsum"]
    assert sorted(name for name, wanted in hub.datasets().items() if wanted.rows) == names
    for wanted in hub.datasets().values():
        assert (wanted.repository is None) != (wanted.url is None)
        assert bool(wanted.files) != bool(wanted.rows)
        assert wanted.licence and wanted.revision != "main"
    with pytest.raises(UserError, match=r"^unknown data set 'sharegtp'\. Did you mean 'sharegpt'\?$"):
        hub.dataset("sharegtp")


def test_one_file_of_a_data_set_is_chosen_by_its_name() -> None:
    (file,) = hub.dataset("burstgpt_without_fails/BurstGPT_without_fails_3.csv").files
    assert file.name == "BurstGPT_without_fails_3.csv"
    with refused("data set burstgpt has no file 'BurstGPT_4.csv'. Did you mean 'BurstGPT"):
        hub.dataset("burstgpt/BurstGPT_4.csv")


def test_an_address_on_the_hub_names_rows_of_a_file() -> None:
    address = f"hf://datasets/some/where@{COMMIT}/data/train-*.parquet"
    found = hub.dataset(address)
    assert found.rows and found.rows.address("some/where", found.revision) == address
    zipped = hub.dataset("dureader").rows
    whole = f"zip://data/dureader.jsonl::hf://datasets/zai-org/LongBench@{COMMIT}/data.zip"
    assert zipped and zipped.address("zai-org/LongBench", COMMIT) == whole


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("some/where@main/a.jsonl", "names no commit, and what a branch holds changes; write some/where@"),
        ("some/where/a.jsonl", "names no commit"),
        ("some", "is no address of a file; write hf://datasets/OWNER/NAME@COMMIT/FILE."),
    ],
)
def test_an_address_without_a_commit_or_a_file_is_refused(address: str, sentence: str) -> None:
    with refused(sentence):
        hub.dataset(f"hf://datasets/{address}")


def test_rows_are_refused_for_a_data_set_of_whole_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^--rows=5 is for data sets that are streamed, and this one comes whole"):
        hub.fetch(hub.dataset("burstgpt/BurstGPT_1.csv"), tmp_path, rows=5)
