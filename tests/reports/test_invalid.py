"""A load that is INVALID says why, also where another of its targets lacks turns."""

from harness.live.live_slo import Asked
from harness.live.verdict import Judgement, LoadVerdict
from harness.slo.targets import INCONCLUSIVE, parse_targets
from reports.live.live_verdict import LiveVerdict, Load, rows

WHY = "FAIL as measured, PASS without the load generator's own send delay; give it more --shards or a quieter machine"


def test_a_duplex_load_names_the_late_sends_and_not_the_turns_that_it_lacks() -> None:
    targets = parse_targets("end_of_turn_delay_p50<=800ms interruption_recall>=80%", "--slo")
    late = Judgement(targets[0], INCONCLUSIVE, 0.81, (0.79, 0.83), 40, (0.81,), WHY, None, True)
    few = Judgement(targets[1], INCONCLUSIVE, 1.0, (0.6, 1.0), 6, (1.0,), "rests on n=6 where 16 are needed", 3)
    found = LoadVerdict(INCONCLUSIVE, (late, few), (), (), True)
    load = Load(2.0, "2 calls", "2", found, 2.0, 60.0)
    verdict = LiveVerdict("ws://host/v1/realtime", Asked(targets, True), None, (load,), None)
    assert verdict.sentence == f"INCONCLUSIVE at 2 calls: P50 end of turn delay 810 ms: INVALID, {WHY}."
    assert [(row["verdict"], row["why"]) for row in rows(verdict)] == [
        ("INVALID", ""),  # the sentence gives the reason
        ("INCONCLUSIVE", few.why),
    ]
