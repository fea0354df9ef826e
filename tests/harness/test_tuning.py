"""The sweep of alpha and beta: what is judged best, and a result file that says how it came about."""

from pathlib import Path

import pandas as pd
import pytest
import yaml

from rehearsal.engines.systems.liveserve.params import Params
from rehearsal.engines.systems.liveserve.tuned import read_tuned
from rehearsal.engines.systems.liveserve.urgency import barge_in_exposure
from rehearsal.harness import tuning
from rehearsal.harness.experiment import expand
from rehearsal.harness.record import Record
from rehearsal.workloads.errors import UserError
from tests.harness import fakes

POINT = fakes.points(1)[0]


class Measured(Record):
    """A finished record that wasted so much and whose requests waited so long at each stage."""

    def __init__(self, waste: float | None, stall_s: float) -> None:
        super().__init__(Path(), POINT, {}, {"wasted_token_ratio": {"value": waste}}, {})
        object.__setattr__(self, "stall_s", stall_s)

    def table(self, name: str) -> pd.DataFrame:
        waits = [self.stall_s / 2, self.stall_s / 2, float("nan")]  # type: ignore[attr-defined]
        return pd.DataFrame({"queueing_thinker_s": waits, "queueing_talker_s": waits})


def sweep(**by_ratio: tuple[float | None, float]) -> dict[str, dict[str, list[Record]]]:
    found = {ratio: [Measured(*by_ratio.get(f"r{i}", (0.4, 10.0)))] for i, ratio in enumerate(tuning.RATIOS)}
    return {stage: dict(found) for stage in tuning.STAGES}  # type: ignore[arg-type]


def test_the_best_wastes_and_stalls_least_each_over_its_largest() -> None:
    tried = tuning.judged(sweep(r2=(0.1, 9.0), r5=(0.2, 2.0), r6=(None, 0.0)))
    costs = {each.ratio: each.cost for each in tried if each.stage == "talker"}
    assert costs["1/1024"] == pytest.approx(0.1 / 0.4 + 9 / 10)
    assert costs["1/16"] == pytest.approx(0.2 / 0.4 + 2 / 10)
    assert costs["1"] == pytest.approx(2) and costs["1/4"] is None
    best = tuning.chosen(tried, "talker")
    assert best is not None and (best.ratio, best.alpha, best.beta) == ("1/16", 1 / 16, 1)


def test_of_equals_the_one_nearest_to_one_is_chosen_and_nothing_of_nothing() -> None:
    best = tuning.chosen(tuning.judged(sweep()), "thinker")
    assert best is not None and best.ratio == "1"
    empty = {stage: {ratio: [] for ratio in tuning.RATIOS} for stage in tuning.STAGES}
    assert tuning.chosen(tuning.judged(empty), "thinker") is None


def test_ratios_that_measure_the_same_are_named_with_the_result() -> None:
    alone, equal = tuning.judged(sweep(r2=(0.1, 9.0))), tuning.judged(sweep(r2=(0.1, 9.0), r6=(0.1, 9.0)))
    assert tuning.undecided(alone, "thinker") == [] and tuning.undecided([], "thinker") == []
    assert tuning.undecided(equal, "talker") == ["1/1024", "1/4"]
    content = tuning.tuned(equal, tuning.SETTINGS, [1000])
    assert "thinker (1/1024, 1/4); talker (1/1024, 1/4)" in content.objective
    assert "no stage" in tuning.tuned(alone, tuning.SETTINGS, [1000]).objective


def test_ratios_reach_below_what_the_gate_lets_decide() -> None:
    params = Params.model_validate({})
    for safe_s in (params.thinker_safe_s, params.talker_safe_s):
        at_gate = barge_in_exposure(params.lead_cap_s, safe_s)
        deciding = [a / b for a, b in tuning.RATIOS.values() if b and 0 < a / b < 1 / at_gate]
        assert len(deciding) >= 4


def test_a_workload_in_which_nothing_stalls_is_judged_by_waste() -> None:
    all_still = {f"r{i}": (0.4 - 0.01 * i, 0.0) for i in range(len(tuning.RATIOS))}
    best = tuning.chosen(tuning.judged(sweep(**all_still)), "thinker")
    assert best is not None and best.ratio == "inf"


def test_the_result_file_is_read_back_with_all_that_led_to_it(tmp_path: Path) -> None:
    tried = tuning.judged(sweep(r5=(0.2, 2.0)))
    content = tuning.tuned(tried, tuning.SETTINGS, [1000, 1001])
    path = tmp_path / "tuned.yaml"
    path.write_text(yaml.safe_dump(content.model_dump(mode="json"), sort_keys=False))
    found = read_tuned(path)
    assert found == content and len(found.measured) == 2 * len(tuning.RATIOS)
    assert (found.weights["thinker"].alpha, found.weights["thinker"].beta) == (1 / 16, 1)
    assert found.seeds == [1000, 1001] and found.code_hash


def test_a_damaged_result_file_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    path.write_text("weights: {thinker: {alpha: -1, beta: 0}}")
    with pytest.raises(UserError, match=r"tuned\.yaml"):
        read_tuned(path)


def test_the_sweep_varies_one_stage_at_a_time_on_seeds_of_its_own() -> None:
    experiments = tuning.experiments({**tuning.SETTINGS, "sessions": 2, "rounds": 1}, [tuning.FIRST_SEED])
    weights = {
        tuple(point.engine_params[f"{stage}_{name}"] for stage in tuning.STAGES for name in ("alpha", "beta"))
        for by_ratio in experiments.values()
        for experiment in by_ratio.values()
        for point in expand(experiment)
    }
    assert len(weights) == 2 * len(tuning.RATIOS) - 1  # 1 and 1 at both stages is one point
    assert all(pair[:2] == (1, 1) or pair[2:] == (1, 1) for pair in weights)
