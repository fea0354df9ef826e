"""The spread of step times: its moments, seeds, stalls and settings."""

from pathlib import Path

import numpy as np
import pyarrow as pa
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

STALLS = st.tuples(st.floats(0.001, 0.1), st.floats(0.01, 10))
SPREADS = st.builds(lambda cv, stalls: Spread(cv, *stalls), st.floats(0.001, 0.5), st.just((0.0, 0.0)) | STALLS)
STEPS = 10_000


@given(SPREADS, st.integers(0, 2**32))
def test_factors_have_mean_1_and_the_stated_spread(spread: Spread, seed: int):
    factors = np.array(spread.draw(np.random.default_rng(seed), STEPS))
    assert factors.mean() == pytest.approx(1, abs=6 * spread.cv / np.sqrt(STEPS) + 1e-6)
    sigma = np.sqrt(np.log1p(spread.cv**2))
    assert np.log(factors).std() == pytest.approx(sigma, rel=0.05)


@given(STALLS, st.integers(0, 2**32))
def test_the_host_stalls_as_often_and_as_long_as_stated(stalls: tuple[float, float], seed: int):
    spread = Spread(0.02, *stalls)
    drawn = Noise(spread, np.random.default_rng(seed))
    stalled = np.array([drawn.next_stall_s() for _ in range(STEPS)])
    assert set(stalled) <= {0.0, spread.stall_s}
    deviation = np.sqrt(spread.stall_chance / STEPS)
    assert np.mean(stalled > 0) == pytest.approx(spread.stall_chance, abs=6 * deviation)
    calm = Noise(Spread(0.02), np.random.default_rng(seed))
    assert [drawn.next() for _ in range(9)] == [calm.next() for _ in range(9)]


@given(SPREADS, st.integers(0, 2**32))
def test_a_seed_draws_the_same_steps_and_a_spawned_worker_others(spread: Spread, seed: int):
    first, second = (Noise(spread, np.random.default_rng(seed)) for _ in range(2))
    steps = [first.next() for _ in range(9)]
    worker = first.spawn()
    assert steps == [second.next() for _ in range(9)]
    assert [worker.next() for _ in range(9)] != [first.next() for _ in range(9)]
    assert NO_NOISE.next() == NO_NOISE.spawn().next() == 1.0


def stated(folder: Path, **spread: float) -> str:
    """Write a deployment with this spread, and return its path."""
    facts = {name: {"value": value, "source": "ours"} for name, value in spread.items()}
    path = folder / f"{spread['cv']}.yaml"
    path.write_text(yaml.safe_dump({"like": "omni_tiny", "spread": facts}))
    return str(path)


@pytest.mark.parametrize(
    ("spread", "says"),
    [({"cv": 0.9}, "cv to 0"), ({"cv": 0.03, "stall_chance": 0.01}, "stall_chance and stall_s together")],
)
def test_a_wrong_spread_is_refused(tmp_path: Path, spread: dict[str, float], says: str):
    with pytest.raises(UserError, match=says):
        load_deployment(stated(tmp_path, **spread))


def test_server_settings_give_the_same_spread_as_a_deployment_file(tmp_path: Path):
    trace = Trace.from_turns([turn()])

    def steps(deployment: str, **server: float) -> pa.Table:
        return replay("vllm_omni_wo", {}, {"deployment": deployment, **server}, {}, trace, 0).steps

    calm = steps("omni_tiny", step_noise_cv=0.02)
    asked = steps("omni_tiny", step_noise_cv=0.02, step_stall_chance=0.1, step_stall_s=0.3)
    assert asked.equals(steps(stated(tmp_path, cv=0.02, stall_chance=0.1, stall_s=0.3)))
    assert calm["dt_s"].to_numpy().max() < 0.3 < asked["dt_s"].to_numpy().max()


@pytest.mark.slow("runs the same points in several ways")
def test_other_workers_and_another_order_change_no_byte(rehearse: Rehearse, tmp_path: Path):
    path = stated(tmp_path, cv=0.02, stall_chance=0.01, stall_s=0.05)
    settings = ["p=0", "c=2", "engine=vllm_omni_wo", f"deployment={path}"]
    point = ["run", "bench", "--quick", "--seeds", "2", *(f"--set={each}" for each in settings)]
    for out, how in (("one", ("--jobs", "1")), ("two", ("--jobs", "2", "--shuffle", "1"))):
        status, _, err = rehearse(*point, *how, "--out", out)
        assert status == 0, err
    events = [sorted(Path(out).glob("points/*/events.parquet")) for out in ("one", "two")]
    one, two = ([path.read_bytes() for path in paths] for paths in events)
    assert one == two and len(set(one)) == 2
