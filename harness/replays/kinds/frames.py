"""Frames on systems of ours: what a frame feeds, and how long a session's context can grow."""

from __future__ import annotations

import numpy as np

from engines.deployments import Deployment
from engines.frames.call_params import CallParams
from engines.models.token_ids import frame_tokens
from harness.client.client_params import ClientParams
from harness.kinds.frames import Frames, check_loop, period_s
from harness.request_tables.frame_table import Beat
from workloads.distributions.speech import audio_tokens
from workloads.errors import UserError
from workloads.trace import Trace


class ReplayFrames(Frames):
    """The kind of calls without pause. Implements `harness.replays.kinds.kind.ReplayKind`."""

    def check(self, params: CallParams, client: ClientParams, deployment: Deployment, trace: Trace) -> None:
        check_loop(client.c, trace)
        fed = frame_tokens(deployment.model, period_s(trace)) + params.template_tokens
        if not fed:
            raise UserError(
                f"deployment {deployment.name!r} takes no audio and template_tokens is 0, so a frame would feed "
                "nothing; set template_tokens to 1 or more."
            )
        if params.on_max_len is None:
            _check_length(params, deployment, fed, trace)

    def replicas(self, deployment: Deployment, trace: Trace) -> int:
        return len(deployment.stages[deployment.entry].gpus)

    def timing(self, params: CallParams, client: ClientParams, deployment: Deployment, trace: Trace) -> Beat:
        """Return the periodic task."""
        budget_s = period_s(trace)
        return Beat(
            budget_s=budget_s,
            cap_s=params.wait_cap * budget_s,
            target_s=params.target_share * budget_s,
            slots=params.slots,
            replicas=self.replicas(deployment, trace),
        )


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


FRAMES = ReplayFrames()
