"""The mechanisms that the paper names."""

from collections.abc import Mapping
from typing import Any

from reports.claims.mechanism import Mechanism

_TESTS = "tests/engines/nova"


def _part(name: str, place: str, test: str, off: Mapping[str, Any] | None = None, instead: str = "") -> Mechanism:
    return Mechanism(name, place, "nova", off or {}, instead, f"{_TESTS}/{test}")


MECHANISMS: tuple[Mechanism, ...] = (
    _part(
        "vision, prefill and decode as workers of their own",
        "III-A",
        "test_loop.py::test_in_turns_decodes_run_when_five_wait_or_nothing_else_does",
        instead="pf_limit",
    ),
    _part(
        "shares of the SMs in place of plain streams",
        "III-B, Table IV",
        "test_loop.py::test_streams_run_all_three_at_once_and_slow_decode_most",
        instead="multi_stream",
    ),
    Mechanism("contention for the L2 cache", "III-B", missing="caches; kernels share bandwidth alone"),
    _part(
        "search of the pair of shares with the lowest expected latency",
        "III-C, eq. (1) to (3)",
        "test_partition.py::test_nothing_is_better_than_what_the_search_finds",
        {"decode_sms_vision": 24, "decode_sms_prefill": 30},
    ),
    _part(
        "shares follow the requests that are pending",
        "III-C, eq. (4), (5)",
        "test_loop.py::test_shares_follow_equation_5_and_take_effect_with_the_next_pass",
        {"adaptive": False},
    ),
    _part(
        "N_min, which decode keeps",
        "III-C, V-A",
        "test_partition.py::test_decode_is_at_its_least_when_four_are_pending",
        {"least_decode_sms": 2},
    ),
    _part(
        "decode first, in-flight batches",
        "III-D, Algorithm 1",
        "test_loop.py::test_a_decode_joins_within_one_iteration",
        instead="pf_limit",
    ),
    _part(
        "prefill before vision, and never next to it",
        "III-D, Algorithm 1",
        "test_loop.py::test_a_prefill_follows_its_vision_without_a_gap",
        instead="multi_stream",
    ),
    _part(
        "layers of the vision encoder come and go (with vision_slots=2)",
        "III-E, eq. (7), (8)",
        "test_shapes.py::test_what_is_offloaded_is_room_for_kv",
        {"vision_slots": None},
    ),
    _part(
        "overhead of scheduling and of changing shares",
        "V-G, Fig. 16",
        "test_loop.py::test_a_worker_takes_its_share_before_each_pass",
        {"repartition_s": 0},
    ),
)
