"""`rehearse replay`: a log at its recorded times, on a simulated system or on a server."""

import json
from pathlib import Path

import pytest

from reports.live.live_verdict import _named
from tests.conftest import Rehearse

LOG = "timestamp,input_tokens,output_tokens,model\n0.1,100,20,m\n0.5,300,40,m\n1.2,0,10,m\n"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text(LOG)
    return "log.csv"


def test_a_log_is_an_open_loop_of_its_own_lengths(
    rehearse: Rehearse, log: str, caplog: pytest.LogCaptureFixture
) -> None:
    status, out, err = rehearse("replay", log, "--dry-run", "--json", "--duration", "5")
    (point,) = json.loads(out)
    assert status == 0 and point["engine"] == "vllm_omni_wo" and point["workload"] == "sessions"
    assert point["client_params"]["c"] is None and point["client_params"]["stop_after_s"] == 5.0
    assert point["workload_params"]["max_reply_tokens"] is None and point["workload_params"]["reply"] == "text"
    said = [*caplog.messages, *err.splitlines()]
    for note in ("columns that are not used: model.", "1 of 3 rows dropped: zero", "2 of 3 rows used."):
        assert [line for line in said if f"log.csv: {note}" in line], said


def test_a_server_gets_the_same_users(rehearse: Rehearse, log: str) -> None:
    status, out, err = rehearse("replay", log, "--url", "http://127.0.0.1:9/v1", "--dry-run", "--json")
    (point,) = json.loads(out)
    assert status == 0 and point["engine"] == "endpoint" and point["client_params"]["c"] is None
    assert point["client_params"]["stop_after_s"] == 2.0 and point["workload_params"]["max_reply_tokens"] is None
    assert "about 2 s of recorded times" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none.csv"], "none.csv does not exist"),
        (["log.csv", "--column", "t"], "--column t is not ROLE=NAME; write for example --column t=arrival."),
        (["log.csv", "--column", "t=a", "--column", "t=b"], "--column t is given twice"),
        (["log.csv", "--column", "t=times"], "has no column 'times' for t."),
        (["log.csv", "--column", "when=timestamp"], "columns"),
        (["log.csv", "--engine", "nova", "--url", "http://127.0.0.1:9/v1"], "leave one of them out"),
        (["log.csv", "--duration", "0"], "--duration 0: give a length"),
        (["bad.csv"], "bad.csv has no column for the time (t) and tokens or text of the whole prompt (input)"),
    ],
)
def test_wrong_input_is_one_sentence(rehearse: Rehearse, log: str, arguments: list[str], sentence: str) -> None:
    Path("bad.csv").write_text("a,output\n1,2\n")
    status, out, err = rehearse("replay", *arguments, "--dry-run")
    assert (status, out) == (2, "") and err.startswith("rehearse: ") and sentence in err


def test_an_experiment_says_that_it_caps_a_log(rehearse: Rehearse, log: str) -> None:
    settings = (
        "workload=sessions",
        "path=log.csv",
        "reply=text",
        "p=0",
        "deployment=llama_8b_1gpu",
        "engine=vllm_omni_wo",
    )
    words = [word for setting in settings for word in ("--set", setting)]
    capped = "c limits the sessions of the file"
    assert capped in rehearse("run", "bench", *words, "--seeds", "1", "--dry-run")[2]
    assert capped not in rehearse("run", "bench", *words, "--seeds", "1", "--set", "c=null", "--dry-run")[2]


def test_a_load_without_a_number_is_the_record() -> None:
    assert _named({}, "text")[1:] == ("the recorded times", "the recorded times")
    assert _named({"time_scale": 2.0}, "text")[1].startswith("the recorded times, time_scale")
    assert _named({"c": 4}, "text")[2] == "4"
