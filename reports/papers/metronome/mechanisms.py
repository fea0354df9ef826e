"""The mechanisms that the paper names."""

from collections.abc import Mapping
from typing import Any

from reports.claims.mechanism import Mechanism
from reports.papers.metronome.calls import BASELINE, OURS, RECYCLING


def _built(name: str, place: str, engine: str, off: Mapping[str, Any], test: str) -> Mechanism:
    return Mechanism(name, place, engine, off, test=f"tests/engines/test_{test}")


MECHANISMS: tuple[Mechanism, ...] = (
    _built(
        "a KV window in the engine",
        "section 4.1, App. A",
        OURS,
        {"window": None},
        "collapse.py::test_a_window_leaves_a_plateau",
    ),
    _built(
        "pinned blocks of sink tokens",
        "section 4.1, App. A",
        OURS,
        {"sinks": 0},
        "bounded.py::test_a_session_holds_its_sinks_and_its_window_and_nothing_else",
    ),
    _built(
        "an attention mask of sinks and window",
        "section 4.1, App. A",
        OURS,
        {"sinks": 0},
        "real_window.py::test_sinks_change_what_is_said_once_the_window_has_left_them",
    ),
    _built(
        "AIMD admission by frame latency",
        "section 4.2",
        OURS,
        {"admission": "off"},
        "aimd.py::test_on_a_curve_that_grows_it_settles_near_the_touch_point",
    ),
    _built(
        "rejection of calls beyond the cap",
        "section 4.2",
        OURS,
        {"admission": "off"},
        "ticks.py::test_admission_hears_the_latency_of_each_frame_and_who_is_turned_away_costs_nothing",
    ),
    _built(
        "one batched Step for all due sessions",
        "section 4",
        BASELINE,
        {"wait_scope": "session"},
        "ticks.py::test_one_starved_session_holds_up_the_whole_tick_until_the_cap_or_only_itself",
    ),
    _built(
        "a Step's wait of 0.8 B at most",
        "section 3",
        BASELINE,
        {"wait_cap": 1.0},
        "ticks.py::test_one_starved_session_holds_up_the_whole_tick_until_the_cap_or_only_itself",
    ),
    _built(
        "a fill rate that varies from run to run",
        "section 3",
        BASELINE,
        {"run_cv": 0.0},
        "collapse.py::test_output_that_varies_changes_the_time_of_the_wall",
    ),
    _built(
        "phase-staggered streams, which share no prefix",
        "section 5.1",
        BASELINE,
        {"staggered": False},
        "sessions.py::test_only_sessions_that_hear_the_same_share_a_prefix",
    ),
    _built(
        "recycling of requests above the engine",
        "section 5.2, App. D",
        RECYCLING,
        {"recycle_at": None},
        "collapse.py::test_recycling_avoids_the_wall_too",
    ),
    _built(
        "a crash of the engine at max_model_len",
        "App. B",
        BASELINE,
        {"on_max_len": "finish_one"},
        "sessions.py::test_a_session_that_outgrows_the_model_ends_alone_or_takes_all_with_it",
    ),
    _built(
        "state that a long-lived worker keeps",
        "App. C",
        BASELINE,
        {"ends_calls": True},
        "sessions.py::test_a_call_that_is_not_ended_keeps_its_kv",
    ),
    Mechanism(
        "Moshi on its native stack", "section 5.5, App. B", missing="it is modelled as calls to vLLM, without voice"
    ),
)
