"""The mechanisms that the paper names."""

from reports.claims.mechanism import Mechanism

_TESTS = "tests/engines/conserve"

MECHANISMS = (
    Mechanism(
        "profiler and performance model of five terms",
        "Sec. 4.2",
        "conserve",
        off={"slo_scheduler": False, "layer_preemption": False},
        test=f"{_TESTS}/test_latency.py::test_the_fit_has_an_error_and_it_is_small_on_steps_it_has_not_seen",
    ),
    Mechanism(
        "token-level scheduling by predicted time",
        "Sec. 4.2, Alg. 1",
        "conserve",
        off={"slo_scheduler": False},
        test=f"{_TESTS}/test_scheduler.py::test_the_step_keeps_its_time_limit_unless_those_who_are_answered_exceed_it",
    ),
    Mechanism(
        "a step that ends a prompt is filled until its TTFT",
        "Sec. 4.2, our reading",
        "conserve",
        off={"ttft_fill": False},
        test=f"{_TESTS}/test_scheduler.py::test_a_step_that_ends_a_prompt_is_filled_as_far_as_its_ttft_allows",
    ),
    Mechanism(
        "online requests first, by priority",
        "Sec. 5, Alg. 1",
        "conserve",
        off={"offline_priority": 100},
        test=f"{_TESTS}/test_scheduler.py::test_the_online_phase_does_not_know_who_is_offline",
    ),
    Mechanism(
        "KV of offline requests released on demand",
        "Sec. 4.2, Alg. 1",
        "conserve",
        off={"offline_priority": 100},
        test=f"{_TESTS}/test_scheduler.py::test_blocks_are_given_out_once_and_taken_from_offline_requests_first",
    ),
    Mechanism(
        "offline mode: the most efficient step when nobody is online",
        "Sec. 4.2",
        "conserve",
        off={"offline_mode": False},
        test=f"{_TESTS}/test_scheduler.py::test_without_online_requests_steps_are_as_large_as_is_efficient",
    ),
    Mechanism(
        "layer-wise preemption on arrival",
        "Sec. 4.3, Alg. 2",
        "conserve",
        off={"layer_preemption": False},
        test=f"{_TESTS}/test_replay.py::test_arrivals_end_long_steps_at_a_safepoint",
    ),
    Mechanism(
        "safepoints every 4 layers, at a cost",
        "Sec. 4.3, 6.5",
        "conserve",
        off={"safepoint_s": 0.0, "safepoint_split_s": 0.0},
        test=f"{_TESTS}/test_replay.py::test_safepoints_cost_what_the_paper_adds_up",
    ),
    Mechanism(
        "ranks of one model agree at a safepoint",
        "Sec. 4.3",
        missing="only its cost is modelled (`safepoint_split_s`); real engines have one GPU a model",
    ),
    Mechanism("safepoints between CUDA graphs", "Sec. 4.3", missing="real engines run eagerly"),
    Mechanism(
        "KV copied to the host as it is computed",
        "Sec. 4.4",
        "conserve",
        off={"resume": "recompute"},
        test=f"{_TESTS}/test_replay.py::test_a_preempted_request_computes_again_only_what_is_nowhere",
    ),
    Mechanism(
        "copies during computation, in a stream of their own",
        "Sec. 4.4, 5",
        "conserve",
        off={"resume": "swap"},
        test=f"{_TESTS}/test_copies.py::test_only_swapping_waits_for_the_copy_of_what_is_preempted",
    ),
    Mechanism(
        "discarded from the tail, only as much as is needed",
        "Sec. 4.4",
        "conserve",
        off={"resume": "recompute"},
        test=f"{_TESTS}/test_copies.py::test_blocks_go_from_the_tail",
    ),
    Mechanism(
        "prefetch of evicted KV during steps",
        "Sec. 4.4, Fig. 5d",
        "conserve",
        off={"resume": "ic"},
        test=f"{_TESTS}/test_copies.py::test_what_comes_back_is_not_computed_again",
    ),
    Mechanism(
        "kernel that gathers scattered KV for one copy",
        "Sec. 5, 6.5",
        missing="blocks are copied one by one, without its cost of up to 500 µs",
    ),
)
