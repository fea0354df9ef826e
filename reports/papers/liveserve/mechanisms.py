"""The mechanisms that the paper names."""

from typing import Any

from reports.claims.mechanism import Mechanism

_ENGINES = "tests/engines"


def _part(name: str, place: str, off: dict[str, Any], test: str) -> Mechanism:
    return Mechanism(name, place, engine="liveserve", off=off, test=f"{_ENGINES}/{test}")


MECHANISMS: tuple[Mechanism, ...] = (
    _part(
        "classes U0, U1 and U2 in one order",
        "section 4.1, Algorithm 1",
        {"scheduling": False},
        "test_displacement.py::test_a_waiting_first_packet_takes_the_round_s_tokens_from_who_is_well_ahead",
    ),
    _part(
        "strict precedence of U0 and U1",
        "section 4.2",
        {"u2_mode": "work_conserving"},
        "test_liveserve.py::test_u2_runs_in_no_step_that_the_urgent_wait_for",
    ),
    _part(
        "barge-in exposure: generation is held near playback",
        "eq. 1 and 2, Fig. 15",
        {"pacing": "never"},
        "test_replay.py::test_liveserve_holds_generation_near_playback",
    ),
    _part(
        "KV pressure in the utility of U2",
        "eq. 1 and 3, Fig. 17",
        {"kv_aware": False},
        "test_liveserve.py::test_without_kv_awareness_pressure_does_not_count",
    ),
    _part(
        "weights from an offline sweep, stage by stage",
        "section 4.1",
        {"talker_alpha": None},
        "test_liveserve.py::test_the_weights_are_those_of_the_offline_sweep",
    ),
    _part(
        "barge-in: engines abort and drop what is past the playback point",
        "section 3",
        {"p": 0},
        "test_replay.py::test_nothing_comes_after_a_barge_in_and_all_blocks_return",
    ),
    _part(
        "prefill of the current turn while the user speaks",
        "section 3",
        {"prefill_ahead_s": 0},
        "test_prefill_ahead.py::test_less_is_left_to_compute_when_the_turn_ends",
    ),
    _part(
        "eviction by predicted next use",
        "section 5.1, eq. 4",
        {"eviction": "off"},
        "test_free_queue.py::test_the_session_that_comes_back_last_loses_blocks_and_lru_would_take_the_other",
    ),
    _part(
        "suffix blocks go before prefix blocks",
        "section 5.1",
        {"eviction": "off"},
        "test_free_queue.py::test_no_block_stays_behind_an_evicted_prefix",
    ),
    _part(
        "a session that begins to speak keeps its KV",
        "section 5.1",
        {"eviction": "off"},
        "test_free_queue.py::test_a_session_about_to_be_used_keeps_everything_until_nothing_else_is_left",
    ),
    _part(
        "indexed heap of candidates: the victims of a scan, without one",
        "section 6, Table 1",
        {"eviction_index": "tail_scan"},
        "test_free_queue.py::test_any_stream_of_events_gives_the_victims_of_brute_force",
    ),
    _part(
        "preload from host memory at the start of speech",
        "section 5.2",
        {"preload": False},
        "test_talker_history.py::test_its_pool_overflows_to_the_host_and_what_is_needed_next_comes_back_early",
    ),
    _part(
        "a preload is admitted only if it ends in time",
        "section 5.2",
        {"preload": False},
        "test_kv_manager.py::test_a_preload_is_let_in_at_equality_and_not_one_block_later",
    ),
    _part(
        "a cap on KV that was loaded early",
        "section 5.2",
        {"protect_cap": 1.0},
        "test_kv_manager.py::test_kv_loaded_early_takes_up_a_fifth_of_the_pool_at_most",
    ),
    _part(
        "urgent requests cancel and hold preloads",
        "section 6",
        {"preload": False},
        "test_kv_manager.py::test_urgent_requests_hold_what_waits_and_end_the_newest_load_first",
    ),
    _part(
        "without playback reports a stage keeps its own order",
        "section 6",
        {"telemetry_timeout_s": 86_400},
        "test_liveserve.py::test_every_request_is_either_in_the_order_or_held_and_urgent_ones_always_run",
    ),
    Mechanism(
        "baseline: KV of idle sessions in host memory",
        "sections 2.3 and 7.1",
        engine="vllm_omni",
        instead="vllm_omni_wo",
        test=f"{_ENGINES}/test_offload.py::test_what_was_evicted_is_loaded_with_offload_and_computed_again_without",
    ),
)
