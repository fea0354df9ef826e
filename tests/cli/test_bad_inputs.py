"""What users mistype, one command a line: each is refused with one sentence and status 2, whatever the files are.

Behind `=>` stand the words that the sentence must have, `&` between them: the field, the value, what would be right.
An experiment on the line, or what follows `x.yaml+`, is put into `made.yaml`.
"""

import json
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

import rehearsal
from engines.devices.kernels.choose import shipped
from engines.devices.kernels.grids import save_kernels
from harness.exit_status import BAD_INPUT
from reports.comparison.gate import LEAST_SEEDS
from tests.calibration.test_profile_file import FACTS
from tests.cli.conftest import LLAMA, small
from tests.conftest import Rehearse
from tests.measured_runs.conftest import line as trace_line
from tests.measured_runs.conftest import span
from tests.reports import served

CASES = (Path(__file__).parent / "bad_inputs.txt").read_text().splitlines()

TRACES = trace_line(span(1, 9000, 9000, 9000, 9000))
SERVER = "model: meta-llama/Llama-3.1-8B\n"
EXPERIMENT = "name: x\nworkload: voice\nengines: [liveserve]\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
FILES: dict[str, str | bytes] = {
    "t.csv": "a,b\n1,2\n",
    "text.txt": "hello",
    "burst.csv": BURST + "x,ChatGPT,1,2,3,API\n",
    "bad.jsonl": "{not json\n",
    "empty.jsonl": "",
    "nohead.jsonl": '{"session":0}\n',
    "empty.parquet": "",
    "garbage.parquet": "PAR1xxxxPAR1",
    "other/file": "x",
    "snd/a.wav": "RIFF1234",
    "res/experiment.json": "{",
    "res2/experiment.json": '{"schema_version": 2}',
    "res2/summary.json": "[]",
    "res3/experiment.json": "[]",
    "res3/summary.json": "{}",
    "cut/traces.json": TRACES[:-3],
    "cut/exp-config.yaml": SERVER,
    "whose/traces.json": TRACES,
    "stranger/traces.json": TRACES,
    "stranger/exp-config.yaml": "model: nobody/NoModel\n",
    "elsewhere/traces.json": TRACES,
    "elsewhere/exp-config.yaml": SERVER + "hardware: Gaudi 3\n",
    "long/traces.json": TRACES,
    "long/exp-config.yaml": SERVER + "max_model_len: 4096\n",
    "many/a/traces.json": TRACES,
    "many/a/exp-config.yaml": SERVER,
    "many/b/traces.json": TRACES,
    "many/b/exp-config.yaml": SERVER + "quantization: awq\n",
    "nocol.csv": "Timestamp,Model,Request tokens,Total tokens,Log Type\n1,ChatGPT,10,30,API log\n",
    "ten.csv": BURST + "1,ChatGPT,10,20,30,API log\n2,ChatGPT,ten,20,30,API log\n",
    "heads.csv": BURST,
    "good.csv": BURST + "1,ChatGPT,10,20,30,Conversation log\n",
    "none.csv": "",
    "open.yaml": "name: [",
    "e.yaml": EXPERIMENT + "set: {sessions: 2}\n",
    "config.json": json.dumps(LLAMA),
    "list.json": "[1]",
    "nofields.json": '{"model_type": "new"}',
    "negative.json": json.dumps(LLAMA | {"hidden_size": -1}),
    "strange.json": json.dumps(LLAMA | {"model_type": "mamba", "mamba_d_state": 16}),
    "int4.json": json.dumps(LLAMA | {"quantization_config": {"quant_method": "awq"}}),
    "typed.yaml": EXPERIMENT.replace("voice", "poisson").replace("liveserve", "vllm_omni")
    + "set: {modality: text, reply: text, requests: 2}\n",
    "calls.yaml": "name: x\nworkload: metronome\nengines: [metronome]\n"
    "set: {sessions: 2, duration_s: 8, deployment: qwen3_omni_pro6000}\n",
    "gui.yaml": "name: x\nworkload: gui\nengines: [nova]\nset: {requests: 2, deployment: cogagent_a6000}\n",
    "unsourced.yaml": "stages: {thinker: {layers: 3}}\n",
    "bin.yaml": "\0\1",
    "latin.yaml": b"name: caf\xe9\n",
    "null.yaml": "",
    "profile.yaml": "name: x\n",
    "measured.yaml": yaml.safe_dump(FACTS),
    "log.csv": "timestamp,input_tokens,output_tokens\n0.1,100,20\n0.5,300,40\n",
    "text.yaml": "name: x\nworkload: poisson\nengines: [vllm_omni_wo]\n"
    "set: {deployment: llama_70b_4xh100, modality: text, reply: text, requests: 2}\n",
    "dupmodel.yaml": "stages: {thinker: {layers: 3}}\nstages: {}\n",
    "dupdeployment.yaml": "like: qwen3_omni_2gpu\nlike: qwen3_omni_8gpu\n",
    "dupprofile.yaml": "stages: {}\nname: x\nstages: {}\n",
    "longname.yaml": EXPERIMENT.replace("name: x", f"name: {'x' * 5000}"),
    "longtitle.yaml": EXPERIMENT + f"title: {'x' * 5000}\n",
    "words.yaml": "run the bench please\n",
    "digits.yaml": EXPERIMENT + f"set: {{c: {'9' * 5000}}}\n",
    "deep.yaml": EXPERIMENT + f"set: {'[' * 50_000}\n",
    "laugh.yaml": "x0: &x0 [a]\n" + "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]\n" for i in range(1, 12)),
    "many.yaml": EXPERIMENT + f"grid: {{p: {[i / 100 for i in range(100)]}, c: {[*range(1, 101)]}}}\nseeds: 1000\n",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("bad")
    for folder in ("dirx", "emptydir"):
        (place / folder).mkdir()
    for name, content in FILES.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content.encode() if isinstance(content, str) else content)
    rehearsal.trace("voice", {"sessions": 3}, out=place / "good.parquet")
    rehearsal.trace("metronome", {"sessions": 2, "duration_s": 8}, out=place / "frames.parquet")
    table = pq.read_table(place / "good.parquet")
    newer = {**json.loads(table.schema.metadata[b"rehearsal"]), "schema_version": 99}
    pq.write_table(table.replace_schema_metadata({b"rehearsal": json.dumps(newer)}), place / "newer.parquet")
    latin = (place / "good.parquet").read_bytes().replace(b"arrival_s", b"arrival_\xe9")
    (place / "latin.parquet").write_bytes(latin)
    kernels = shipped("llama_3_1_70b", "h100")
    assert kernels is not None
    save_kernels(kernels, place / "kernels.yaml")
    served.serve(place / "runs", small(grid={"c": [8]}, seeds=list(range(LEAST_SEEDS))))
    os.mkfifo(place / "pipe")
    yield place
    assert stat.S_ISFIFO((place / "pipe").stat().st_mode)


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_in_a_sentence(case: str, place: Path, rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch):
    command, _, words = case.partition(" => ")
    arguments = [as_file(word, place) for word in shlex.split(command)]
    before = written(place)
    monkeypatch.chdir(place)
    monkeypatch.setenv("BROKEN_TOKEN", "S3CRET\nlines")
    status, out, err = rehearse(*arguments)
    (line,) = [line for line in err.splitlines() if not line.endswith(" …")]  # stages, on a slow machine
    assert (status, out) == (BAD_INPUT, "")
    assert line.startswith("rehearse: ") and line.endswith((".", "?")) and "S3CRET" not in line
    assert "Traceback" not in line and "Error(" not in line
    assert [word for word in words.split(" & ") if word not in line] == [], line
    assert written(place) == before, "it left or changed something"


def as_file(word: str, place: Path) -> str:
    """A word that is an experiment, or `x.yaml+` and lines that follow `EXPERIMENT`, as the name of a file."""
    more = word.removeprefix("x.yaml+")
    if word == more and not word.startswith("{"):
        return word
    text = word if word == more else EXPERIMENT + more.replace("\\n", "\n")
    (place / "made.yaml").write_text(f"{text}\n")
    return "made.yaml"


def written(place: Path) -> dict[Path, int]:
    """When each file was changed, ns."""
    return {path: path.stat().st_mtime_ns for path in place.rglob("*")}
