from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.device import Row
from engines.devices.step_time import CONSERVE, FORMS, SEGMENTED, StepTime, Totals, term, terms, totals
from harness.calibration.fit import Sample, TooFewSteps, fit, fit_stage, held_out, knots, predict, undisturbed


def row(tokens: int, context: int, samples: bool = True) -> Row:
    return Row("", tokens, context, samples)


TRUTH = {"k1": 4.2e-4, "k2": 2.4e-7, "k4": 2.1e-6, "k5": 2.1e-2}
"""Our own measurement of an 8-layer decoder on one core, s."""


def grid_steps(truth: dict[str, float], noise: float = 0.0, repeats: int = 3, seed: int = 0) -> list[Sample]:
    rng = np.random.default_rng(seed)
    model, samples = StepTime(truth), []
    for decodes, context, chunk in product((0, 1, 4, 8, 16, 31), (32, 128, 320, 640), (0, 8, 16, 32, 64, 128)):
        if not decodes + chunk:
            continue
        rows = [row(1, context)] * decodes + ([row(chunk, context, samples=False)] if chunk else [])
        for _ in range(repeats):
            seconds = model.seconds(totals(rows)) * float(rng.lognormal(-0.5 * noise**2, noise))
            at = len(samples)
            samples.append(Sample((decodes, context, chunk), totals(rows), seconds, at, 1e-3 + 1e-9 * at))
    return samples


def longer(samples: list[Sample], factor: Callable[[int, Sample], float]) -> list[Sample]:
    """The same, each with its time times a factor of its number and itself."""
    return [replace(sample, seconds=sample.seconds * factor(i, sample)) for i, sample in enumerate(samples)]


def test_totals_are_summed_request_by_request():
    total = totals([row(1, 99), row(10, 20, samples=False), row(3, 0)])
    assert total == Totals(requests=3, tokens=14, samples=2, pairs=100 + 300 + 9, visible=100 + 30 + 3)


def test_segments_cover_every_token_once():
    names = [name for name in terms(SEGMENTED, (4, 16, 64)) if name.startswith("tokens")]
    assert names == ["tokens_0_4", "tokens_4_16", "tokens_16_64", "tokens_64_up"]
    for tokens in (0, 1, 4, 5, 16, 63, 64, 65, 1000):
        assert sum(term(name)(Totals(tokens=tokens)) for name in names) == tokens


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_known_coefficients_come_back(noise: float):
    samples = grid_steps(TRUTH, noise)
    found = fit(samples, terms(CONSERVE))
    for name, value in TRUTH.items():
        assert found[name] == pytest.approx(value, rel=1e-4 if not noise else 0.15)
    assert predict(samples, found).sum() == pytest.approx(sum(s.seconds for s in samples), rel=1e-4)


def test_stalls_do_not_bend_the_fit_but_are_in_its_mean():
    quiet = grid_steps(TRUTH)
    stalled = longer(quiet, lambda i, _: 4 if i % 40 == 0 else 1)
    clean, found = fit(quiet, terms(CONSERVE)), fit(stalled, terms(CONSERVE))
    scale = sum(s.seconds for s in stalled) / sum(s.seconds for s in quiet)
    assert {name: found[name] for name in TRUTH} == pytest.approx({n: clean[n] * scale for n in TRUTH}, rel=1e-4)


def test_disturbed_steps_are_left_out_and_counted():
    steps = grid_steps(TRUTH, noise=0.02)
    stalled, loud = {7, 200}, range(100, 160)
    disturbed = longer(steps, lambda i, _: 5 if i in stalled else 3 if i in loud else 1)
    for i in loud:  # another process slows the canary too
        disturbed[i] = replace(disturbed[i], canary_s=2 * disturbed[i].canary_s)
    quiet, found = fit_stage(steps), fit_stage(disturbed)
    # Step 99 goes as well: the canary after it is slow.
    assert found.samples == len(steps) - len(stalled) - len(loud) - 1
    assert found.left_out == pytest.approx(63 / len(steps), rel=1e-3)
    assert predict(steps, found.fitted.coefficients) == pytest.approx(
        predict(steps, quiet.fitted.coefficients), rel=0.03
    )
    assert found.fitted.held_out.median < 0.03  # about the noise


def test_a_machine_that_was_never_quiet_still_gives_a_fit():
    rng = np.random.default_rng(2)
    few = grid_steps(TRUTH, 0.1, repeats=1)[:40]
    steps = [replace(sample, canary_s=sample.canary_s * float(rng.uniform(1, 20))) for sample in few]
    assert undisturbed(steps) == steps
    found = fit_stage(steps)
    assert found.left_out == 0
    assert found.forms[CONSERVE].coefficients["k3"] == 0  # communication between GPUs, of which there is one


def test_a_cell_is_predicted_by_fits_that_never_saw_it():
    samples = grid_steps(TRUTH)
    odd = samples[0].cell
    bent = longer(samples, lambda _, sample: 10 if sample.cell == odd else 1)
    before, after = held_out(samples, terms(CONSERVE)), held_out(bent, terms(CONSERVE))
    here = [i for i, sample in enumerate(samples) if sample.cell == odd]
    assert here and after[here] == pytest.approx(before[here], rel=1e-6)


def test_too_few_steps_are_refused():
    with pytest.raises(TooFewSteps, match="different steps"):
        fit_stage(grid_steps(TRUTH)[:12])


COEFFICIENT = st.floats(1e-9, 1e-2)


@given(
    st.fixed_dictionaries({name: COEFFICIENT for name in ("k1", "k2", "k4", "k5")}),
    st.sampled_from(list(FORMS)),
    st.lists(st.builds(row, st.integers(1, 300), st.integers(0, 4000)), min_size=1, max_size=20),
    st.integers(0, 19),
)
def test_more_work_never_takes_less_time(truth: dict[str, float], form: str, step: list[Row], changed: int):
    samples = grid_steps(truth, noise=0.1, repeats=1)
    model = StepTime(fit(samples, terms(form, knots(samples))))
    assert min(model.coefficients.values()) >= 0
    seconds, changed = model.predict(step), changed % len(step)
    assert seconds >= 0
    old = step[changed]
    for heavier in (replace(old, tokens=old.tokens + 1), replace(old, context=old.context + 50)):
        assert model.predict([*step[:changed], heavier, *step[changed + 1 :]]) >= seconds
    one_request_more = [*step, row(1, 10)]
    assert model.predict(one_request_more) >= seconds
