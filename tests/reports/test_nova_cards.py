"""Nova's cards: what the model says of two stages at once."""

import pytest

from reports.cards import card as cards
from reports.figures.picture import Picture
from reports.figures.style import style
from reports.papers.nova import fig4, fig8, table6
from reports.papers.nova.common import profile


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


@pytest.mark.parametrize("name", ["nova-fig4", "nova-fig6", "nova-fig8"])
def test_what_the_model_says_is_drawn_without_runs(name: str) -> None:
    draw = cards.figures()[name].draw
    with style():
        assert draw is not None and isinstance(draw({}), Picture)
