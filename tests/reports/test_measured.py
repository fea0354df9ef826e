import pytest

from reports.claims.published import Published, along, matching
from reports.figures import generation
from reports.figures.picture import Picture
from reports.figures.shared_turns import TurnLog, shared_turns
from reports.figures.style import looks, style
from reports.pages.sections import comparison, headline, ours
from reports.runs.measured import Run, load_run
from reports.tables.columns import columns
from tests.metrics.event_log import EventLog
from tests.reports.served import bench, serve


@pytest.fixture(scope="module")
def modes(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A grid over a parameter that only one engine has."""
    grid = {"c": [16], "p": [0.0, 1.0], "u2_mode": ["yielding", "work_conserving"]}
    return load_run(serve(tmp_path_factory.mktemp("modes") / "run", bench(grid=grid, seeds=[0, 1, 2, 3])))


def test_an_engines_own_parameter_makes_variants_and_not_cells(modes: Run) -> None:
    assert [variant.label for variant in modes.variants] == [
        "vllm_omni",
        "liveserve u2_mode=yielding",
        "liveserve u2_mode=work_conserving",
    ]
    assert modes.cells == [(("c", 16), ("p", 0.0)), (("c", 16), ("p", 1.0))]
    assert [len(group["rows"]) for group in headline(modes, columns(True))] == [3, 3]
    assert len({look.colour for look in looks(modes.variants).values()}) == 3


def test_verdicts_follow_the_direction_and_the_interval(modes: Run) -> None:
    shown = columns(True)
    quiet, loud = (
        dict(zip((column.metric for column in shown), (value["verdict"] for value in row["values"]), strict=True))
        for row in comparison(modes, shown)[0]["rows"]
    )
    assert quiet["audio_ttfp_p90"] == "better"  # lower is better
    assert quiet["continuity"] == "better"  # higher is better
    assert quiet["wasted_token_ratio"] == "" and loud["wasted_token_ratio"] == "better"


def test_generation_and_playback_of_the_longest_reply(modes: Run) -> None:
    with style():
        picture = generation.draw(modes)
    assert isinstance(picture, Picture)
    baseline, paced, _ = modes.variants
    whole = shared_turns(modes, {"c": 16, "p": 0.0}, "completed")
    longest = max(whole, key=lambda turn: turn.rows[baseline]["audio_s"])
    speech_s = longest.rows[baseline]["audio_s"]
    late = longest.session % 2 == 0  # the baseline sends the second packet 1.3 s late
    last_s = speech_s - 0.8  # the begin of the last packet
    spans, played = picture.read_off[generation.GENERATION], picture.read_off[generation.PLAYBACK]
    assert spans[baseline] == pytest.approx(0.3 + last_s / 4 + (1.3 if late else 0.0))  # four times as fast as speech
    assert spans[paced] == pytest.approx(0.2 + last_s - 3.0)  # never more than 3 s ahead
    assert played[baseline] == pytest.approx(speech_s + (0.7 if late else 0.0))  # dry from 0.8 s to 0.2 + 1.3 s
    assert played[paced] == pytest.approx(speech_s)


def test_playback_pauses_when_dry_and_ends_at_the_interruption() -> None:
    log = EventLog().start().audio((2.0, 1.0), (3.5, 2.0)).barge_in(4.0, 1.5)
    assert TurnLog(log.events).playback() == [(2.0, 3.0), (3.5, 4.0)]
    log = EventLog().start().audio((2.0, 1.0), (2.2, 2.0)).done(5.0, played=3.0)
    assert TurnLog(log.events).playback() == [(2.0, 5.0)]


def test_the_paper_is_matched_by_its_setting(modes: Run) -> None:
    def entry(setting: dict, largest: bool = False) -> Published:
        return Published("Fig. 1", "wasted_token_ratio", setting, {"vllm_omni": 0.4}, "a paper", largest)

    here, elsewhere, maximum = entry({"c": 16, "p": 1.0}), entry({"c": 4, "p": 1.0}), entry({}, largest=True)
    entries = [here, elsewhere, maximum]
    assert matching(entries, "wasted_token_ratio", {"c": 16, "p": 1}) == [here]
    assert along(entries, "wasted_token_ratio", "c", {"p": 1}) == [(16, here), (4, elsewhere)]
    baseline = modes.variants[0]
    at_p1 = ours(here, modes, {})[baseline]
    assert at_p1 is not None and at_p1 > 0.1
    assert ours(maximum, modes, {})[baseline] == at_p1  # nothing is wasted at p = 0
    assert ours(elsewhere, modes, {})[baseline] is None
    assert ours(here, modes, {"wasted_token_ratio": {baseline: 0.25}})[baseline] == 0.25
