"""The mechanics of virtual time against real execution on this machine's CPU: a gate, and proof that it can fail.

Step costs and the times of arrival in the queue are the real run's own, so the machine's drift, and what else runs on
it, are in both. What is compared is the loop: which requests a step holds, how many there are, when tokens reach whom.
"""

import numpy as np
import pytest

from engines.deployments.available import missing
from harness.calibration.fidelity import LENGTHS, RealRun, Served, serve_real, serve_virtual
from harness.calibration.fidelity_report import Agreement, agreement, judge_mechanics
from harness.calibration.fit import OwnCosts, fit_costs, nearest_canary
from harness.replays.worker.fresh_process import in_fresh_process

pytestmark = [
    pytest.mark.slow("runs a model on the CPU"),
    pytest.mark.skipif(missing("cpu") is not None, reason="needs vLLM for the CPU"),
]

ATTEMPTS = 3

SERVED = Served("llama_tiny", {**LENGTHS, "rate": 8.0, "requests": 60, "reply_tokens": 48.0}, seed=11)


def virtually(run: RealRun, factor: float = 1.0, host: bool = True) -> tuple[Agreement, OwnCosts]:
    """The run again in virtual time; with costs times `factor`, or without what the loop itself takes."""
    seconds = run.costs["seconds" if host else "device_s"] * factor
    costs = run.costs.assign(seconds=seconds)
    charged = OwnCosts(costs, fit_costs(costs))
    requests, steps = serve_virtual(SERVED, charged, nearest_canary(run.canaries), run.late_s)
    return agreement(run.requests, requests, len(run.costs), steps), charged


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    """Served in a process of its own; again, at most twice, when it misses the gate: what other work on the machine
    does to the clients' own timers only ever adds to the error, while a wrong mechanic misses every time."""
    log = tmp_path_factory.mktemp("gate") / "log.txt"
    for _ in range(ATTEMPTS):
        run = in_fresh_process(log, serve_real, SERVED, "cpu")
        if judge_mechanics([virtually(run)[0]]).result == "pass":
            break
    return run


def test_virtual_time_with_the_real_run_s_step_costs_is_the_real_run(real: RealRun):
    met, charged = virtually(real)
    verdict = judge_mechanics([met])
    assert verdict.result == "pass", verdict.why
    assert met.requests == SERVED.params["requests"] and met.unpaired == 0
    assert charged.charged == met.steps
    assert charged.matched > 0.5 * charged.charged  # the loop chose the same batches by itself


@pytest.mark.parametrize(
    "wrong", [{"factor": 1.1}, {"factor": 0.9}, {"host": False}], ids=["slower", "faster", "no host"]
)
def test_a_wrong_mechanic_is_detected(real: RealRun, wrong):
    met, _ = virtually(real, **wrong)
    assert judge_mechanics([met]).result == "fail"


def test_requests_that_join_at_other_times_are_detected(real: RealRun):
    late_s = real.late_s + 0.2 * (np.arange(len(real.late_s)) % 2)  # every other request joins later
    costs = OwnCosts(real.costs, fit_costs(real.costs))
    requests, steps = serve_virtual(SERVED, costs, nearest_canary(real.canaries), late_s)
    met = agreement(real.requests, requests, len(real.costs), steps)
    assert judge_mechanics([met]).result == "fail"


def test_the_canary_s_time_is_in_no_step(real: RealRun):
    canaries, costs = real.canaries.to_dict("list"), real.costs.to_dict("list")
    assert len(canaries["end_s"]) >= 5
    took_s, spans_s = (sum(log["end_s"]) - sum(log["begin_s"]) for log in (canaries, costs))
    assert sum(costs["seconds"]) + took_s == pytest.approx(spans_s)
