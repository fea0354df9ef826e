"""The spread of step times: its moments, its seeds, and what it leaves as it was."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from engines.deployments import load_deployment
from engines.devices.noise import NO_NOISE, Noise
from engines.devices.spread import Spread
from tests.builders import turn
from tests.conftest import Rehearse
from tests.engines.replays import replay
from workloads.errors import UserError
from workloads.trace import Trace

SPREADS = st.builds(Spread, st.floats(0.001, 0.5), st.just(0.0) | st.floats(0.001, 0.1), st.floats(1, 20))
STEPS = 10_000


@given(SPREADS, st.integers(0, 2**32))
def test_factors_have_mean_1_and_the_stated_spread(spread: Spread, seed: int):
    factors = np.array(spread.draw(np.random.default_rng(seed), STEPS))
    extra = spread.stall_chance * (1 - spread.stall_chance) * (spread.stall - 1) ** 2
    mean = 1 + spread.stall_chance * (spread.stall - 1)
    variance = (1 + spread.cv**2) * (1 + extra / mean**2) - 1
    assert factors.mean() == pytest.approx(1, abs=6 * np.sqrt(variance / len(factors)) + 1e-6)
    calm = np.array(Spread(spread.cv).draw(np.random.default_rng(seed), STEPS))
    sigma = np.sqrt(np.log1p(spread.cv**2))
    assert np.log(calm).std() == pytest.approx(sigma, rel=0.05)


@given(SPREADS, st.integers(0, 2**32))
def test_the_same_seed_draws_the_same_steps_and_workers_others(spread: Spread, seed: int):
    first, second = (Noise(spread, np.random.default_rng(seed)) for _ in range(2))
    steps = [first.next() for _ in range(9)]
    worker = first.spawn()
    assert steps == [second.next() for _ in range(9)]
    assert [worker.next() for _ in range(9)] != [first.next() for _ in range(9)]
    assert NO_NOISE.next() == NO_NOISE.spawn().next() == 1.0


def test_a_spread_without_stalls_is_the_noise_there_was():
    sigma = np.sqrt(np.log1p(0.007**2))
    drawn = np.random.default_rng(5).lognormal(-0.5 * sigma**2, sigma, 4096)
    together, one_by_one = (Noise(Spread(0.007), np.random.default_rng(5), draws) for draws in (4096, 1))
    assert [together.next() for _ in drawn] == np.round(drawn[::-1], 6).tolist()
    assert [one_by_one.next() for _ in drawn] == np.round(drawn, 6).tolist()


def stated(folder: Path, **spread: float) -> str:
    """Write a deployment with this spread, and return its path."""
    facts = {name: {"value": value, "source": "ours"} for name, value in spread.items()}
    path = folder / f"{spread['cv']}.yaml"
    path.write_text(yaml.safe_dump({"like": "omni_tiny", "spread": facts}))
    return str(path)


def test_a_deployment_states_its_spread(tmp_path: Path):
    path = stated(tmp_path, cv=0.02, stall_chance=0.002, stall=3.0)
    assert load_deployment(path).spread == Spread(0.02, 0.002, 3.0)
    assert load_deployment("omni_tiny").spread is None
    with pytest.raises(UserError, match="cv to 0"):
        load_deployment(stated(tmp_path, cv=0.9))


def test_settings_state_a_spread_as_a_deployment_does(tmp_path: Path):
    trace = Trace.from_turns([turn()])
    path = stated(tmp_path, cv=0.02, stall_chance=0.1, stall=3.0)
    asked = {"step_noise_cv": 0.02, "step_stall_chance": 0.1, "step_stall": 3.0}
    calm, one, other = (
        replay("vllm_omni_wo", {}, {"deployment": name, **more}, {}, trace, 0).steps.to_pandas()
        for name, more in (("omni_tiny", {"step_noise_cv": 0.02}), (path, {}), ("omni_tiny", asked))
    )
    assert one.equals(other)
    longest = [steps[steps["tokens"] == 1].groupby("stage")["dt_s"].max() for steps in (calm, other)]
    assert (longest[1] > 2 * longest[0]).any()


def test_settings_give_any_deployment_a_spread_as_its_file_does(tmp_path: Path):
    trace = Trace.from_turns([turn()])

    def steps(deployment: str, **server: float) -> pd.DataFrame:
        run = replay("vllm_omni_wo", {}, {"deployment": deployment, **server}, {}, trace, 0)
        return run.steps.to_pandas().astype({"stage": str})

    calm = steps("omni_tiny", step_noise_cv=0.02)
    asked = steps("omni_tiny", step_noise_cv=0.02, step_stall_chance=0.1, step_stall=3.0)
    assert asked.equals(steps(stated(tmp_path, cv=0.02, stall_chance=0.1, stall=3.0)))
    calm_s, asked_s = (table.query("stage == 'talker' and tokens == 1")["dt_s"] for table in (calm, asked))
    assert asked_s.max() > 2 * calm_s.max()
    assert asked_s.mean() == pytest.approx(calm_s.mean(), rel=0.2)


@pytest.mark.slow
def test_other_workers_and_another_order_change_no_byte(rehearse: Rehearse, tmp_path: Path):
    path = stated(tmp_path, cv=0.02, stall_chance=0.01, stall=3.0)
    settings = ["p=0", "c=2", "engine=vllm_omni_wo", f"deployment={path}"]
    point = ["run", "bench", "--quick", "--seeds", "2", *(f"--set={each}" for each in settings)]
    assert rehearse(*point, "--jobs", "1", "--out", "one")[0] == 0
    assert rehearse(*point, "--jobs", "2", "--shuffle", "1", "--out", "two")[0] == 0
    events = [sorted(Path(out).glob("points/*/events.parquet")) for out in ("one", "two")]
    one, two = ([path.read_bytes() for path in paths] for paths in events)
    assert one == two and len(set(one)) == 2
