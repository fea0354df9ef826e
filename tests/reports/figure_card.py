"""A small figure card and its results, from the scripted servers: every number is known in advance."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.records.results import claim, write_summary
from reports.cards import card as cards
from reports.cards.card import Figure
from reports.cards.group import Group, Shown, load_group
from reports.claims.claim import Claim
from reports.claims.quantities import of, ratio, value
from reports.claims.sensitivity import Sensitivity, varied
from reports.cli.card_points import expanded
from reports.figures import forms
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import style
from reports.pages.group_page import write_group_report
from tests.conftest import render_nothing
from tests.reports import served
from tests.reports.served import bench
from tests.reports.written import Fails, Measure, never, write_points


class StandIn:
    """An object with any fields, such as a point that was not run; a figure counts points by hash."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


GROUP = "liveserve"
PAIR = ["vllm_omni", "liveserve"]

EXPERIMENTS = {
    "quiet": bench(name="small", grid={"c": [8, 16]}, set={"sessions": 6, "turns": 2, "p": 0.0}),
    "loud": bench(name="small", grid={}, set={"sessions": 6, "turns": 2, "p": 1.0, "c": 8}),
}
BASELINE, OURS = of("quiet", "vllm_omni", c=8), of("quiet", "liveserve", c=8)

FACT = "Sec. 3: TTFP"
THIRD = ratio("audio_ttfp_p50", OURS, to=BASELINE)
CLAIMS = [
    Claim("ttfp", "TTFP falls <by a third>", 0.65, THIRD, 0.05, "×", 1, fact=FACT),
    Claim("far", "TTFP falls to a tenth", 0.1, THIRD, 0.05, "×", 1, fact=FACT),
    Claim(
        "up", "TTFP doubles", 2, THIRD, 0.5, "×", 1,
        explanation=lambda ours: f"here it is {ours:.3f}", remark="another figure says it falls",
    ),
    Claim("fitted", "TTFP", 0.3, value("audio_ttfp_p50", BASELINE), 0.1, "ms", fitted="host times"),
    Claim("absent", "at c = 32", 0.5, value("audio_ttfp_p50", of("quiet", "liveserve", c=32)), 0.1, "s"),
]  # fmt: skip

draw = forms.figure("small", forms.lines("audio_ttfp_p50", forms.grid("quiet", PAIR, c=[8, 16])), caption="A caption.")


def figure(name: str = "liveserve-small", **changes: Any) -> Figure:
    """The card, with fields replaced."""
    fields: dict[str, Any] = {"name": name, "group": GROUP, "title": "A small figure", "experiments": EXPERIMENTS}
    fields |= {"quick": {"c": "8"}, "claims": CLAIMS, "draw": draw, "sensitivity": None}
    return Figure(**{**fields, **changes})


def smaller(
    card: Figure,
    change: Callable[[dict[str, Any]], dict[str, Any]],
    seeds: Sequence[int] | None = None,
    without: str = "",
) -> Figure:
    """A shipped card with other settings in each panel, and other seeds where they are given; `without`: panels whose
    names have this word."""
    more = {} if seeds is None else {"seeds": [*seeds]}
    panels = {
        panel: each.model_copy(update={**more, "set": change(each.set)})
        for panel, each in card.experiments.items()
        if not (without and without in panel)
    }
    return replace(card, experiments=panels)


def assert_drawn(whole: Shown, failed: Shown) -> None:
    """Its picture, and that there is none of runs that failed, of which it knows nothing."""
    assert {claim.spread.n for claim in failed.claims} <= {0}
    draw = whole.figure.draw
    assert draw is not None
    with style():
        picture, nothing = (draw(card.panels) for card in (whole, failed))
    assert isinstance(picture, Picture) and isinstance(nothing, LeftOut)
    assert all(axes.has_data() for axes in picture.figure.axes)


def sensitive(variations: Mapping[str, Mapping[str, Any]]) -> Figure:
    """A card that asks the claims of the small one again."""
    experiments, sensitivity = varied(
        {"liveserve-small": (EXPERIMENTS, {claim.id: claim for claim in CLAIMS})}, variations
    )
    assert isinstance(sensitivity, Sensitivity)
    return figure("liveserve-moved", experiments=experiments, claims=[], draw=None, sensitivity=sensitivity)


def serve_cards(folder: Path, shown: list[Figure], fails: Fails = never, measure: Measure = served.measure) -> Path:
    """Measure every point of the cards with scripted servers; those that `fails` names fail."""
    collection, points = expanded(shown[0].group, {card.name: dict(card.experiments) for card in shown})
    with claim(folder, collection) as points_dir:
        write_points(points_dir, points, measure, fails)
        write_summary(folder, collection.points)
    return folder


def whole_and_failed(
    folder: Path, shown: list[Figure], others: Sequence[Figure] = (), measure: Measure = served.measure
) -> tuple[Group, Group]:
    """These cards measured, and the same with every point failed, where they and `others` are all that there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cards, "figures", lambda: {card.name: card for card in [*shown, *others]})
        whole, failed = (
            load_group(serve_cards(folder / name, shown, fails, measure))
            for name, fails in (("whole", never), ("failed", lambda point: True))
        )
        render_nothing(patch)
        write_group_report(whole)
    return whole, failed
