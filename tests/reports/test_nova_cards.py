"""Nova's cards: what the model says of two stages at once."""

import pytest

from harness.by_device import expand
from reports.cards import card as cards
from reports.claims.grading import HOLDS
from reports.claims.quantities import Measure
from reports.claims.stated import claim, saturated, times
from reports.figures.picture import Picture
from reports.figures.style import style
from reports.papers.nova import fig4, fig8, saturation, table6
from reports.papers.nova.common import OURS, at, gui, profile
from reports.papers.nova.errors import ERRORS, off, with_errors


@pytest.mark.parametrize("stage", ["vision", "prefill"])
def test_side_by_side_nobody_is_quicker_than_alone_and_both_get_more_done(stage: str) -> None:
    for sms in getattr(profile(), stage):
        assert min(fig8.slower(stage, sms)) >= 1
        assert fig8.gain(stage, sms) < 2
    assert all(fig8.gain(stage, sms) > 1 for sms in range(18, 37, 2))


def test_the_least_bandwidth_is_all_layers_in_a_pass() -> None:
    """Equation (8) with two slots or more: M / T."""
    layers = table6.encoder()
    assert table6.least_gb_s(0.5) == pytest.approx(layers.layers * layers.layer_bytes / 0.5 / 1e9)


@pytest.mark.parametrize(("slower", "highest"), [(1.0, 44), (1.15, 38), (1.2, 36), (1.25, 36), (1.3, 34)])
def test_contention_of_a_fifth_ends_fig_4s_window_at_36(slower: float, highest: int) -> None:
    assert max(fig4.window(slower)) == highest


def test_each_error_of_a_system_has_its_points() -> None:
    """Every other parameter is that of the point without an error."""
    plain = gui("served", [OURS], [0.8], requests=20)
    ((panel, wrong),) = with_errors("served", "served", OURS, [0.8], requests=20).items()
    (as_modelled, *_), points = expand(plain), expand(wrong)
    for error in ERRORS:
        asked = off(at(0.8), error)
        found = [each for each in points if asked.params.items() <= each.params.items()]
        assert asked.panel == panel and {each.seed for each in found} == {0, 1, 2}
        assert {**found[0].params, "scale": as_modelled.params["scale"]} == as_modelled.params


def test_a_verdict_turns_at_the_errors_with_another_outcome() -> None:
    def thrice(number: float) -> Measure:
        return lambda panels: dict.fromkeys(range(3), number)

    over = {"−1 %": thrice(0.95), "+1 %": thrice(1.2)}
    lowest = times((1.001, 10.0), words="the lowest")
    judged = claim("quicker", lowest, thrice(1.05), untold=saturated("FLOP/s", over))
    assert saturation.turns(judged, {}) == (HOLDS, ["−1 %"])


@pytest.mark.parametrize("name", ["nova-fig4", "nova-fig6", "nova-fig8"])
def test_what_the_model_says_is_drawn_without_runs(name: str) -> None:
    draw = cards.figures()[name].draw
    with style():
        assert draw is not None and isinstance(draw({}), Picture)
