"""What a run of interaction sessions needs before it begins, and the periodic task that it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from engines.calls.params import CallParams
from engines.deployment import Deployment
from engines.models.token_ids import frame_tokens
from engines.registry import ENGINES
from engines.server import ServerParams, resolve
from harness.metrics.frames import Beat
from workloads.errors import UserError
from workloads.registry import serves
from workloads.trace import Trace

STAGE = "thinker"


def check(
    engine: str,
    engine_params: dict[str, Any],
    client_params: dict[str, Any],
    server: ServerParams,
    trace: Trace,
) -> None:
    """UserError when the engine serves another kind of workload, or the sessions of `trace` cannot be served so."""
    kind, spec = serves(trace), ENGINES[engine]
    if spec.kind != kind:
        able = ", ".join(name for name, other in ENGINES.items() if other.kind == kind)
        raise UserError(
            f"engine {engine!r} serves {spec.kind}, and workload {trace.header.generator!r} is made of {kind}; "
            f"set engine to one of: {able}, or take another workload."
        )
    if kind == "frames":
        if client_params["c"] is not None:
            raise UserError(
                f"c={client_params['c']} makes a closed loop, but the audio of workload {trace.header.generator!r} "
                "waits for nobody; leave c out and set sessions."
            )
        params = spec.model(engine_params).model_validate(engine_params)
        assert isinstance(params, CallParams)
        deployment = resolve(server)
        fed = frame_tokens(deployment.model, float(trace.columns()["audio_s"][0])) + params.template_tokens
        if not fed:
            raise UserError(
                f"deployment {deployment.name!r} takes no audio and template_tokens is 0, so a frame would feed "
                "nothing; set template_tokens to 1 or more."
            )
        if params.on_max_len is None:
            _check_length(params, deployment, fed, trace)


def beat_of(engine_params: dict[str, Any], server: ServerParams, trace: Trace) -> Beat:
    """The periodic task of a point whose trace has frames."""
    budget_s = float(trace.columns()["audio_s"][0])
    return Beat(
        budget_s=budget_s,
        cap_s=engine_params["wait_cap"] * budget_s,
        target_s=engine_params["target_share"] * budget_s,
        slots=engine_params["slots"],
        replicas=len(resolve(server).stages[STAGE].gpus),
    )


def longest_context(params: CallParams, fed: int, trace: Trace) -> tuple[int, int]:
    """The session whose context can grow longest, and to how many tokens, at `fed` tokens a frame.

    Each frame adds what is fed and what is said, without its last token (specification 2.1). An engine that recycles
    does so before the frame at which a session is beyond its horizon.
    """
    columns = trace.columns()
    ids, of_row = np.unique(columns["session"], return_inverse=True)
    frames = np.bincount(of_row)
    tokens = frames * (fed - 1) + np.bincount(of_row, columns["output_tokens"]).astype(np.int64) + 1
    if params.recycle_at is not None:
        tokens = np.minimum(tokens, params.recycle_at + fed + int(columns["output_tokens"].max()))
    longest = int(np.argmax(tokens))
    return int(ids[longest]), int(tokens[longest])


def _check_length(params: CallParams, deployment: Deployment, fed: int, trace: Trace) -> None:
    limit = deployment.stages[STAGE].max_model_len
    session, tokens = longest_context(params, fed, trace)
    if tokens > limit:
        raise UserError(
            f"session {session} could grow to {tokens} tokens, and max_model_len of deployment {deployment.name!r} is "
            f"{limit}; set duration_s lower, or say with on_max_len (crash_all or finish_one) what happens then."
        )
