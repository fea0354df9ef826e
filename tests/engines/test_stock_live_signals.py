"""Live signals to stock vLLM, over HTTP too: what each does to a session's requests, and how bad ones are refused."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.sampling_params import SamplingParams

from engines.core import vllm_adapter as vllm
from engines.stock.live_signals import PATH, LiveSignals, http
from engines.stock.scheduler import Scheduler
from tests.engines.stage import step
from tests.engines.stock_scheduler import SCHEDULERS, Pipelined, add, buffered, make, signal
from workloads.errors import UserError

pytestmark = pytest.mark.usefixtures("vllm_s_own_engine_process")


@pytest.mark.parametrize("cls", SCHEDULERS)
def test_a_barge_in_ends_the_session_s_requests_and_no_other(cls: type):
    scheduler = make(cls, blocks=100)
    add(scheduler, "a-0123abcd", session="talks")
    add(scheduler, "b-0123abcd", session="talks")
    add(scheduler, "c-0123abcd")
    run = Pipelined(scheduler)
    run.step()
    run.step()
    assert sorted(signal(scheduler, "barge_in", "talks")) == ["a-0123abcd", "b-0123abcd"]
    assert signal(scheduler, "barge_in", "c") == ["c-0123abcd"]  # by its external id
    while run.under_way:
        run.land()
    assert scheduler.free_blocks == scheduler.allocatable_blocks
    assert not scheduler.requests


def test_the_http_front_end_names_the_session_in_extra_arguments():
    scheduler = make(Scheduler)
    request = vllm.make_request("cmpl-1-0-0123abcd", [1, 2], 3, 0.0)
    request.session_id = None
    request.sampling_params = SamplingParams(max_tokens=3, extra_args={"session": "caller"})
    scheduler.add_request(request)
    assert signal(scheduler, "barge_in", "caller") == ["cmpl-1-0-0123abcd"]


def test_a_heard_reply_updates_the_session_s_speech_rate():
    scheduler = make(Scheduler, {"engine": "vllm_omni", "speech_s_per_text_token": 1.0})
    signal(scheduler, "turn_committed", "s", turn=0)
    add(scheduler, "a", output=4, session="s")
    for _ in range(5):
        step(scheduler)
    signal(scheduler, "audio_sent", "s", turn=0, seconds=2.0)
    signal(scheduler, "playback_done", "s", turn=0)
    assert scheduler.signals.view("s", 100.0).speech_s_per_token == pytest.approx(0.7 * 1.0 + 0.3 * 0.5)


def test_a_closed_session_is_forgotten():
    scheduler = make(Scheduler)
    buffered(scheduler, "s")
    add(scheduler, "a", session="s")
    assert signal(scheduler, "close", "s") == ["a"]
    assert not scheduler.signals.monitor.sessions
    step(scheduler)
    assert not scheduler._ready


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"verb": "sing", "session": "a"}, "parameter 'verb' should be 'speech_start'"),
        ({"verb": "speech_start"}, "parameter 'session' is required"),
        ({"verb": "audio_sent", "session": "a", "turn": 0}, "audio_sent needs 'seconds'; add it"),
        ({"verb": "playback_ack", "session": "a", "turn": 0, "seconds": -1}, "'seconds' should be greater"),
        (["barge_in"], "a signal is a JSON object"),
    ],
)
def test_a_bad_signal_is_refused_in_one_sentence(values: Any, sentence: str):
    with pytest.raises(UserError, match=sentence):
        asyncio.run(LiveSignals(SimpleNamespace(engine_core=None)).send(values))


async def abort(name: str, signal: dict[str, Any]) -> dict[str, Any]:
    """Answer a signal as the engine core does: it has ended one request, named as the session."""
    return {"aborted": [{"request": signal["session"], "tokens": 3}]}


def posted(body: bytes, path: str = PATH) -> Any:
    """What the middleware answers to a POST; `passed on` where the rest of the server answers."""
    client = SimpleNamespace(engine_core=SimpleNamespace(call_utility_async=abort))

    async def json_body() -> Any:
        return json.loads(body)

    async def rest_of_the_server(request: Any) -> str:
        return "passed on"

    app = SimpleNamespace(state=SimpleNamespace(engine_client=client))
    request = SimpleNamespace(url=SimpleNamespace(path=path), method="POST", json=json_body, app=app)
    return asyncio.run(http(request, rest_of_the_server))


def test_over_http_a_signal_is_answered_with_the_requests_that_it_ended():
    answer = posted(b'{"verb": "barge_in", "session": "caller"}')
    assert answer.status_code == 200
    assert json.loads(answer.body)["aborted"] == [{"request": "caller", "tokens": 3}]


def test_over_http_a_bad_signal_has_status_400_and_a_sentence():
    answer = posted(b"nonsense")
    assert answer.status_code == 400
    assert "a signal is a JSON object" in json.loads(answer.body)["error"]


def test_over_http_a_request_to_another_path_is_passed_on():
    assert posted(b"{}", "/v1/completions") == "passed on"


def test_an_engine_without_our_scheduler_says_how_to_start_it():
    async def call(name: str, *args: Any) -> None:
        raise Exception(f"Call to {name} method failed: 'EngineCoreProc' object has no attribute '{name}'")

    llm = SimpleNamespace(engine_core=SimpleNamespace(call_utility_async=call))
    with pytest.raises(UserError, match="start it with --scheduler-cls engines"):
        asyncio.run(LiveSignals(llm).barge_in("a"))
