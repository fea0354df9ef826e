"""The targets of a live run whose user gives none, by what its endpoint serves, and which targets fit it.

Voice: the first sound within 800 ms of the end of the user's speech, and 95 % of replies without an audible gap. People
answer each other in about 200 ms, and builders of voice agents hold the whole way to 800 ms, most at P95; here it is
P90, as a minute of eight calls has too few turns for more. 95 % is what useful load asks (`reports.runs.useful`). Gaps
are judged one by one, and by their sum (vLLM-Omni's definition, `harness.request_tables.playback`): small pauses add
up. At most one reply of twenty begins while the caller still speaks. [chosen]
Text: the first token within 2 s, the limit of MLPerf Inference's Server scenario for Llama 2 70B, which holds its P99
to it; a P99 takes 368 requests, a P90 36.
Open microphones: half of the answers begin within 800 ms of the end of the turn, the server's own wait for silence
included, and four interruptions of five stop the agent within 2 s.
Failures: at most 1 % of the turns, of every service. [chosen]
Frames: 95 % come back within their period and with text; one that is in time and empty says nothing to anybody.
Sources: Stivers et al., PNAS 106 (2009), on gaps between turns; MLCommons, inference policies, constraints of Server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.experiments.experiment import Experiment
from harness.live.endpoints.target import TargetParams
from harness.metrics.frames import FRAME_DEFINITIONS
from harness.metrics.live import LIVE_DEFINITIONS
from harness.metrics.metric_name import parsed
from harness.metrics.replies import FAILED_SHARE
from harness.metrics.turn_taking import TURN_TAKING_DEFINITIONS
from harness.metrics.turns import DEFINITIONS
from harness.slo.targets import Target, name_of, parse_targets
from workloads.errors import UserError
from workloads.registry import WORKLOADS

VERDICT = "verdict.json"
FAILURES = "failed<=1%"
"""The target of every verdict whose targets say nothing of failures."""
DEFAULTS = {
    "voice": "ttfp_p90<=800ms continuity>=95% continuity_fixed_timeline>=95% talked_over<=5%",
    "text": "ttft_p90<=2s",
    "open microphones": "end_of_turn_delay_p50<=800ms interruption_recall>=80%",
    "frames": "cadence_nonempty>=95%",
}
_TURNS, _FRAMES, _DUPLEX = (
    {parsed(name).family for name in definitions.keys() | LIVE_DEFINITIONS}
    for definitions in (DEFINITIONS, FRAME_DEFINITIONS, DEFINITIONS | TURN_TAKING_DEFINITIONS)
)
_METRICS = {
    "voice": _TURNS,
    "text": {parsed(name).family for name, each in (DEFINITIONS | LIVE_DEFINITIONS).items() if not each.spoken},
    "open microphones": _DUPLEX,
    "frames": _FRAMES,
}
"""Families of metrics that a run of each kind can have. An ordinary run of turns has also those of its classes."""


def served(experiment: Experiment) -> str | None:
    """Return the kind of service of a live experiment's endpoint, a key of `DEFAULTS`; None: a kind of another
    package."""
    workload = WORKLOADS.get(experiment.workload)
    kinds = {"turns": "voice", "duplex": "open microphones", "frames": "frames"}
    kind = kinds.get(workload.serves) if workload is not None else None
    if kind != "voice":
        return kind
    target = TargetParams.model_construct(url=str(experiment.set.get("url", "")))
    return "text" if target.is_text or experiment.set.get("modalities") == "text" else "voice"


def counted_as(what: str | None, axis: str | None = None) -> str:
    """Return the unit of a load: calls; for text users, or requests where `axis` is a rate."""
    return "call" if what != "text" else "request" if axis == "rate" else "user"


def default_targets(what: str | None) -> tuple[Target, ...]:
    """Return the default targets of a service; none for a kind of another package."""
    return with_failures(parse_targets(DEFAULTS[what], "--slo")) if what is not None else ()


def with_failures(targets: tuple[Target, ...]) -> tuple[Target, ...]:
    """Return the targets, and the default one on failed turns where none of them is on failures."""
    if any(target.metric == FAILED_SHARE for target in targets):
        return targets
    return (*targets, *parse_targets(FAILURES, "--slo"))


def check_targets(experiment: Experiment, targets: Sequence[Target], option: str) -> None:
    """Raise UserError, before anything is measured, for a metric that no such run can have."""
    what = served(experiment)
    for target in targets:
        name = parsed(target.metric)
        if what is not None and not name.request_class and name.family not in _METRICS[what]:
            raise UserError(
                f"{option}: {name_of(target.metric)} is not measured of {what}, which workload "
                f'{experiment.workload} at this url is; write for example {option} "{DEFAULTS[what]}".'
            )


@dataclass(frozen=True)
class Asked:
    """`given`: the targets are the user's own."""

    targets: tuple[Target, ...]
    given: bool = False

    def write(self, folder: Path, more: dict[str, Any] | None = None) -> None:
        """DIR/verdict.json."""
        from harness.records.record import write_json

        targets = [{"metric": t.metric, "op": t.op, "bound": t.bound} for t in self.targets]
        data = {"schema_version": 1, "asked": {"targets": targets, "given": self.given}}
        write_json(folder / VERDICT, {**data, **(more or {})})

    @classmethod
    def read(cls, folder: Path) -> Asked | None:
        """Read the targets that were asked of a results directory; None where none were. UserError for a damaged
        file."""
        path = folder / VERDICT
        if not path.is_file():
            return None
        try:
            data = json.loads(path.read_text())["asked"]
            return cls(tuple(Target(**each) for each in data["targets"]), data["given"])
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(f"{path} is damaged; delete it, and give --slo again.") from None
