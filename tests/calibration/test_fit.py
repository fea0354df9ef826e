"""The fit on made-up steps: known coefficients come back, nothing is negative, more work never takes less time."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.devices.step_time import CONSERVE, FORMS, SEGMENTED, StepTime, Totals, term, terms, totals
from harness.calibration.fit import Sample, TooFewSteps, fit, fit_stage, held_out, knots, predict, undisturbed


@dataclass
class Row:
    tokens: int
    context: int
    samples: bool = True
    request_id: str = ""


TRUTH = {"k1": 4.2e-4, "k2": 2.4e-7, "k4": 2.1e-6, "k5": 2.1e-2}
"""Our own measurement of an 8-layer decoder on one core, s."""


def grid_steps(truth: dict[str, float], noise: float = 0.0, repeats: int = 3, seed: int = 0) -> list[Sample]:
    rng = np.random.default_rng(seed)
    model, samples = StepTime(truth), []
    for decodes in (0, 1, 4, 8, 16, 31):
        for context in (32, 128, 320, 640):
            for chunk in (0, 8, 16, 32, 64, 128):
                if not decodes + chunk:
                    continue
                rows = [Row(1, context)] * decodes + ([Row(chunk, context, samples=False)] if chunk else [])
                total = totals(rows)
                for _ in range(repeats):
                    seconds = model.seconds(total) * float(rng.lognormal(-0.5 * noise**2, noise))
                    at = len(samples)
                    samples.append(Sample((decodes, context, chunk), total, seconds, at, 1e-3 + 1e-9 * at))
    return samples


def test_totals_are_summed_request_by_request():
    total = totals([Row(1, 99), Row(10, 20, samples=False), Row(3, 0)])
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
    stalled = [
        Sample(s.cell, s.totals, s.seconds * (4 if i % 40 == 0 else 1), s.at_s, s.canary_s) for i, s in enumerate(quiet)
    ]
    clean, found = fit(quiet, terms(CONSERVE)), fit(stalled, terms(CONSERVE))
    scale = sum(s.seconds for s in stalled) / sum(s.seconds for s in quiet)
    for name in TRUTH:
        assert found[name] == pytest.approx(clean[name] * scale, rel=1e-4)


def test_what_others_disturbed_is_left_out_and_counted():
    quiet = grid_steps(TRUTH, 0.02)
    clean = fit_stage(quiet)
    disturbed = [
        Sample(s.cell, s.totals, s.seconds * 3, s.at_s, 2 * s.canary_s)
        if 100 <= i < 160
        else Sample(s.cell, s.totals, s.seconds * (5 if i in (7, 200) else 1), s.at_s, s.canary_s)
        for i, s in enumerate(quiet)
    ]
    found = fit_stage(disturbed)
    assert found.left_out * len(quiet) == pytest.approx(62, abs=4)
    assert found.samples + 62 == pytest.approx(len(quiet), abs=4)
    here, there = (predict(quiet, profile.fitted.coefficients) for profile in (clean, found))
    assert there == pytest.approx(here, rel=0.03)
    assert found.fitted.held_out.median < 0.03


def test_a_machine_that_was_never_quiet_still_gives_a_fit():
    rng = np.random.default_rng(2)
    steps = [
        Sample(s.cell, s.totals, s.seconds, s.at_s, s.canary_s * float(rng.uniform(1, 20)))
        for s in grid_steps(TRUTH, 0.1, repeats=1)[:40]
    ]
    assert len(undisturbed(steps)) == len(steps)
    assert fit_stage(steps).left_out == 0


def test_a_cell_is_predicted_by_fits_that_never_saw_it():
    samples = grid_steps(TRUTH)
    odd = samples[0].cell
    bent = [Sample(s.cell, s.totals, s.seconds * (10 if s.cell == odd else 1), s.at_s, s.canary_s) for s in samples]
    before, after = held_out(samples, terms(CONSERVE)), held_out(bent, terms(CONSERVE))
    for i, sample in enumerate(samples):
        if sample.cell == odd:
            assert after[i] == pytest.approx(before[i], rel=1e-6)


def test_the_better_form_is_used_and_both_are_kept():
    straight = fit_stage(grid_steps(TRUTH, 0.02))
    assert straight.forms.keys() == FORMS.keys()
    assert straight.forms[CONSERVE].coefficients["k3"] == 0
    assert straight.fitted.held_out.median < 0.02
    # A batch that is free up to 16 tokens and dear beyond: no straight line in the tokens.
    bent = fit_stage(grid_steps({"constant": 0.01, "tokens_16_64": 1e-4, "tokens_64_up": 2e-3}))
    assert bent.form == SEGMENTED
    assert bent.fitted.held_out.median < 0.01 < bent.forms[CONSERVE].held_out.median


def test_noise_shows_in_the_residual_and_drift_in_the_canary():
    noisy = grid_steps(TRUTH, 0.1)
    assert fit_stage(noisy).residual_cv == pytest.approx(0.1, rel=0.15)
    slowing = [Sample(s.cell, s.totals, s.seconds, s.at_s, 1e-3 * (1 + s.at_s / len(noisy))) for s in noisy]
    assert fit_stage(slowing).drift.canary_spread == pytest.approx(0.7, abs=0.2)


def test_too_few_steps_are_refused():
    with pytest.raises(TooFewSteps, match="different steps"):
        fit_stage(grid_steps(TRUTH)[:12])


COEFFICIENT = st.floats(1e-9, 1e-2)


@given(
    st.fixed_dictionaries({name: COEFFICIENT for name in ("k1", "k2", "k4", "k5")}),
    st.sampled_from(list(FORMS)),
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 4000)), min_size=1, max_size=20),
    st.integers(0, 19),
)
def test_more_work_never_takes_less_time(truth: dict[str, float], form: str, rows: list[tuple[int, int]], which: int):
    samples = grid_steps(truth, 0.1, repeats=1)
    model = StepTime(fit(samples, terms(form, knots(samples))))
    assert min(model.coefficients.values()) >= 0
    step = [Row(tokens, context) for tokens, context in rows]
    here = model.predict(step)
    index = which % len(rows)
    tokens, context = rows[index]
    for more in (Row(tokens + 1, context), Row(tokens, context + 50)):
        assert model.predict([*step[:index], more, *step[index + 1 :]]) >= here
    assert model.predict([*step, Row(1, 10)]) >= here >= 0
