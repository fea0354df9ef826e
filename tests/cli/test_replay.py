import json
from pathlib import Path

import pytest

from tests.conftest import Rehearse


@pytest.fixture(autouse=True)
def log(rehearse: Rehearse) -> None:
    """Write a log of three requests, one of them without a prompt."""
    Path("log.csv").write_text("timestamp,input_tokens,output_tokens,model\n0.1,100,20,m\n0.5,300,40,m\n1.2,0,10,m\n")


def test_a_log_is_an_open_loop_of_its_own_lengths(rehearse: Rehearse, caplog: pytest.LogCaptureFixture) -> None:
    status, out, err = rehearse("replay", "log.csv", "--dry-run", "--json", "--duration", "5")
    (point,) = json.loads(out)
    assert (status, point["engine"], point["workload"]) == (0, "vllm_omni_wo", "sessions")
    assert point["client_params"]["c"] is None and point["client_params"]["stop_after_s"] == 5.0
    assert point["workload_params"]["max_reply_tokens"] is None and point["workload_params"]["reply"] == "text"
    said = [*caplog.messages, *err.splitlines()]
    for note in ("columns that are not used: model.", "1 of 3 rows dropped: zero", "2 of 3 rows used."):
        assert [line for line in said if f"log.csv: {note}" in line], said


def test_a_server_gets_the_same_users(rehearse: Rehearse) -> None:
    status, out, err = rehearse("replay", "log.csv", "--url", "http://127.0.0.1:9/v1", "--dry-run", "--json")
    (point,) = json.loads(out)
    assert (status, point["engine"], point["client_params"]["c"]) == (0, "endpoint", None)
    assert point["client_params"]["stop_after_s"] == 2.0 and point["workload_params"]["max_reply_tokens"] is None
    assert "about 2 s of recorded times" in err
