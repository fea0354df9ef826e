"""The mechanisms that the paper names."""

from reports.claims.mechanism import Mechanism

ENGINE, TESTS = "omniinfer", "tests/engines/omniinfer"
EXPERTS, REBALANCING = f"{TESTS}/test_expert_parallel.py", f"{TESTS}/test_rebalancing.py"
FOLLOWED = "test_replicas_make_steps_shorter_and_following_a_drift_keeps_them_short"
PLACED = {"placement": "omniplacement"}
STREAM = f"{TESTS}/test_deferred_submission.py"

MECHANISMS: tuple[Mechanism, ...] = (
    Mechanism(
        "OmniPlacement: first layout with replicas of hot experts",
        "4.1, eq. (1) to (4), Algorithm 1",
        ENGINE,
        {"placement": "sequential"},
        test=f"{EXPERTS}::{FOLLOWED}",
    ),
    Mechanism(
        "replicas by each layer's imbalance",
        "4.1, layer-wise redundant deployment",
        ENGINE,
        PLACED | {"redundant_slots": 0},
        test="tests/reports/test_omniinfer_cards.py::test_a_budget_by_imbalance_helps_where_slots_are_few",
    ),
    Mechanism(
        "topology-aware remapping of experts",
        "4.1, Algorithm 1",
        missing="communication between hosts and what remapping saves of it; dies are dealt to hosts in turn",
    ),
    Mechanism(
        "dynamic scheduler: a new layout when imbalance passes a trigger and a margin",
        "4.1, Algorithm 2",
        ENGINE,
        PLACED | {"rebalance": False},
        test=f"{REBALANCING}::test_it_follows_a_load_that_has_changed_and_leaves_a_balanced_one_alone",
    ),
    Mechanism(
        "a new layout pays for its copies (ours; the paper has the margin alone)",
        "4.1, Algorithm 2, line 11",
        ENGINE,
        PLACED | {"weigh_copies": False},
        test=f"{REBALANCING}::test_a_layout_that_saves_less_than_its_copies_cost_is_left",
    ),
    Mechanism(
        "forecast of activations",
        "4.1, Algorithm 2, line 7",
        ENGINE,
        PLACED | {"forecast": "last"},
        test=f"{REBALANCING}::test_a_linear_forecast_follows_the_trend_by_one_interval",
    ),
    Mechanism(
        "monitoring on a stream of its own",
        "4.1, near real-time scheduling",
        missing="the cost of reading the counters",
    ),
    Mechanism(
        "weights migrate behind the steps, a layer at a time",
        "4.1, pipelined updates",
        ENGINE,
        PLACED | {"copy_share": 0.99},
        test=f"{REBALANCING}::test_while_a_layer_is_copied_the_old_one_serves_and_steps_keep_most_of_the_link",
    ),
    Mechanism(
        "OmniAttn: first and last tokens in compressed layers",
        "4.2, eq. (5), (6)",
        ENGINE,
        {"attention": "full"},
        test=f"{TESTS}/test_attention_pattern.py::test_compressed_layers_hold_their_blocks_and_full_layers_all",
    ),
    Mechanism(
        "genetic search for the layers to compress",
        "4.2, eq. (7)",
        missing="a score: the accuracy of each pattern on held-out data, which needs DeepSeek-R1's weights",
    ),
    Mechanism(
        "deferred submission and sorting at the proxy, over eight phases (ours: the published code sends at once)",
        "5.1",
        ENGINE,
        {"deferred": False},
        test=f"{STREAM}::test_nobody_is_handed_over_in_the_middle_of_a_batch",
    ),
    Mechanism(
        "prefill instance by cached prefix and load",
        "5.1, eq. (8)",
        ENGINE,
        {"routing": "least_load"},
        test="tests/engines/omniinfer/test_omniproxy.py::test_equation_8_follows_the_prefix_until_the_load_outweighs_it",
    ),
    Mechanism(
        "decode die by processing time, longest first",
        "5.1, eq. (9)",
        ENGINE,
        {"decode_routing": "round_robin"},
        test=f"{TESTS}/test_omniproxy.py::test_the_longest_is_assigned_first_to_the_node_with_the_least_work",
    ),
)
