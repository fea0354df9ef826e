"""A talker that reads its session's history: what it keeps between turns it need not compute again."""

from tests.engines.replays import run, voice_trace

BLOCK = 16


def computed(replayed, stage: str = "talker") -> int:
    steps = replayed.steps.to_pandas()
    return int(steps.loc[steps["stage"] == stage, "tokens"].sum())


def spoken(replayed) -> int:
    events = replayed.events.to_pandas()
    return int(events.loc[(events["kind"] == "token") & (events["stage"] == "talker"), "value"].sum())


def test_a_turn_computes_what_is_new_and_at_most_a_block_of_what_was_heard():
    trace = voice_trace(sessions=5, p=0.0)
    anew, history = run(trace), run(trace, server={"talker_history": True})
    assert spoken(anew) == spoken(history)
    turns = sum(len(session.turns) for session in trace.sessions)
    assert 0 <= computed(history) - computed(anew) <= BLOCK * (turns - len(trace.sessions))


def test_what_was_not_heard_is_not_kept():
    """Blocks beyond an interruption are let go; the next turn finds what was heard."""
    trace = voice_trace(sessions=5, p=1.0)
    history = run(trace, server={"talker_history": True})
    assert history.counters["talker.truncated_blocks"] > 0
    assert run(trace).counters.get("talker.truncated_blocks", 0) == 0


def test_its_pool_overflows_to_the_host_and_what_is_needed_next_comes_back_early():
    trace = voice_trace(sessions=6, turns=3.0, p=0.0)
    server = {"talker_history": True, "talker_pool_blocks": 140}
    counters = run(trace, "liveserve", server=server).counters
    assert counters["talker.evict_blocks"] > 0
    assert counters["talker.preload_issued"] > 0
    lru = run(trace, "liveserve", server=server, preload=False, eviction="off").counters
    assert "talker.preload_issued" not in lru
