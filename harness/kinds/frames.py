"""Frames: calls of audio that never stops, in frames that are due whatever the server does with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from engines.deployments import Deployment
from engines.frames.call_params import CallParams
from engines.models.token_ids import frame_tokens
from harness.client.client_params import ClientParams
from harness.client.interaction import Ending, InteractionServer, serve_interactions
from harness.endpoints.target import TargetParams, check_secrets
from harness.events.log import EventLog
from harness.metrics.frames import summarise_frames
from harness.metrics.metric import Metric
from harness.request_tables.frame_table import DELIVERED, EMPTY, Beat, frame_table, typed
from workloads.distributions.speech import audio_tokens
from workloads.errors import UserError
from workloads.trace import Trace

if TYPE_CHECKING:
    from harness.endpoints.dialects.dialect import Dialect


class Frames:
    """The kind of calls without pause. Implements `harness.kinds.kind.LiveKind`."""

    name = "frames"
    Timing = Beat

    def check(self, params: CallParams, client: ClientParams, deployment: Deployment, trace: Trace) -> None:
        self._check_loop(client.c, trace)
        fed = frame_tokens(deployment.model, _period_s(trace)) + params.template_tokens
        if not fed:
            raise UserError(
                f"deployment {deployment.name!r} takes no audio and template_tokens is 0, so a frame would feed "
                "nothing; set template_tokens to 1 or more."
            )
        if params.on_max_len is None:
            _check_length(params, deployment, fed, trace)

    def replicas(self, deployment: Deployment, trace: Trace) -> int:
        return len(deployment.stages[deployment.entry].gpus)

    async def play(
        self, trace: Trace, server: Any, log: EventLog, params: ClientParams, replicas: int
    ) -> None:
        """Play the frames, always in an open loop."""
        await serve_interactions(trace, server, log, params)
        if isinstance(server, Ending):
            server.end_left()

    def timing(self, params: CallParams, deployment: Deployment, trace: Trace) -> Beat:
        """Return the periodic task."""
        budget_s = _period_s(trace)
        return Beat(
            budget_s=budget_s,
            cap_s=params.wait_cap * budget_s,
            target_s=params.target_share * budget_s,
            slots=params.slots,
            replicas=self.replicas(deployment, trace),
        )

    def requests(self, turns: pd.DataFrame, events: pd.DataFrame, timing: Beat) -> pd.DataFrame:
        return frame_table(events, turns, timing)

    def metrics(
        self,
        turns: pd.DataFrame,
        events: pd.DataFrame,
        steps: pd.DataFrame,
        requests: pd.DataFrame,
        end_s: float,
        timing: Beat,
    ) -> Mapping[str, Metric]:
        del turns
        return summarise_frames(typed(requests), steps, events, end_s, timing)

    def check_target(self, target: TargetParams, trace: Trace, c: int | None) -> None:
        for url in target.addresses:
            check_secrets(url)
        if target.is_http or target.synthesizes or target.dialect not in ("auto", "rehearsal"):
            raise UserError(
                f"workload {trace.header.generator!r} is made of frames, which only dialect rehearsal carries; set "
                "dialect=rehearsal and the url of a server of ours, or use another workload."
            )
        self._check_loop(c, trace)

    def spoken(self, target: TargetParams, trace: Trace) -> Dialect:
        from harness.endpoints.dialects import for_frames

        return for_frames(target)

    def endpoint(self, trace: Trace, target: TargetParams, log: EventLog, sends: Any, failures: Any) -> Any:
        from harness.endpoints.frame_endpoint import FrameEndpoint

        server: InteractionServer = FrameEndpoint(trace, target, log, sends, failures)
        return server

    def floor(self, target: TargetParams) -> str:
        return "frames"

    def first_answer(self, target: TargetParams, trace: Trace) -> str:
        return "latency"

    def target_timing(
        self,
        trace: Trace,
        client: ClientParams,
        events: pd.DataFrame,
        end_s: float,
        turns: int | None = None,
    ) -> Beat:
        """Return the paper's shares of the frame period."""
        period_s, default = _period_s(trace), CallParams.model_validate({})
        return Beat(period_s, default.wait_cap * period_s, default.target_share * period_s)

    def turn_rows(self, requests: pd.DataFrame) -> None:
        return None

    def answered(self, requests: pd.DataFrame) -> np.ndarray:
        return np.isin(requests["status"], [DELIVERED, EMPTY])

    def serve_settings(self, trace: Trace) -> dict[str, Any]:
        return {"frame_s": _period_s(trace)}

    def load(
        self,
        workload: str,
        known: Mapping[str, Any],
        sessions: int,
        rate: float | None,
        duration_s: float,
    ) -> tuple[str, dict[str, Any]]:
        if rate is not None:
            raise UserError(
                f"--rate is not for workload {workload}; set the rate of its calls with --set rate=R."
            )
        return "sessions", {"duration_s": duration_s}

    def _check_loop(self, c: int | None, trace: Trace) -> None:
        if c is not None:
            raise UserError(
                f"c={c} makes a closed loop, but the audio of workload {trace.header.generator!r} does not wait; "
                "leave c out and set sessions."
            )


def _period_s(trace: Trace) -> float:
    return float(trace.columns()["audio_s"][0])


def longest_context(params: CallParams, fed: int, trace: Trace) -> tuple[int, int]:
    """Return the session whose context can grow longest, and to how many tokens, at `fed` tokens a frame.

    Each frame adds the fed and the generated tokens, without the last generated one (specification 2.1). An engine that
    recycles does so before the frame at which a session is beyond its horizon.
    """
    columns = trace.columns()
    ids, of_row = np.unique(columns["session"], return_inverse=True)
    dense = columns["input_tokens"] / audio_tokens(columns["audio_s"])  # `engines.models.token_ids.density`
    grows = np.ceil(fed * dense) + columns["output_tokens"] - 1
    tokens = np.bincount(of_row, grows).astype(np.int64) + 1
    if params.recycle_at is not None:
        tokens = np.minimum(tokens, params.recycle_at + fed + int(columns["output_tokens"].max()))
    longest = int(np.argmax(tokens))
    return int(ids[longest]), int(tokens[longest])


def _check_length(params: CallParams, deployment: Deployment, fed: int, trace: Trace) -> None:
    limit = deployment.stages[deployment.entry].max_model_len
    session, tokens = longest_context(params, fed, trace)
    if tokens > limit:
        raise UserError(
            f"session {session} could grow to {tokens} tokens, and max_model_len of deployment {deployment.name!r} is "
            f"{limit}; set duration_s lower, or set on_max_len to crash_all or finish_one."
        )


FRAMES = Frames()
