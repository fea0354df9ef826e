"""What LiveServe's cards share: its server, how its concurrency is read, and what was calibrated.

The paper does not say what c counts, how long replies are, or what its talker takes. All of that was chosen at once, on
numbers of its *baseline* alone (card `liveserve-calibration` shows them over the one constant that decides), and holds
in every card: c sessions at one pair of thinker and talker; replies of 12 text tokens in the median and 8 at least,
with a log-spread of 1.5 (2.2 to 143 s of speech, as Table 1's replies take 3 s and Fig. 15's plays for 66 s); a first
packet of 25 codec frames (the default of vLLM-Omni at that time); and a talker whose host takes 6.6 ms for each
request of a step and next to nothing for the step. Nothing was fitted to a result of LiveServe.
"""

from engines.deployments.changes import write_scale
from harness.metrics.summary import effective_rps
from reports.figures.shared_turns import TurnLog
from reports.papers.prelude import *

BASELINES = ["vllm_omni_wo", "vllm_omni"]
"""The paper's two, without and with KV offload."""

PAIR = ["vllm_omni", "liveserve"]
"""Where the paper compares with the offloading baseline alone."""

SEEDS = [0, 1, 2, 3, 4]

CALIBRATED = (
    "what c counts, the law of lengths and the talker's host time were chosen by this number and others of the "
    "baseline; see liveserve-calibration"
)

QWEN, MING = "qwen3_omni_2gpu_april", "ming_flash_omni_4gpu"
"""The smallest parts of the paper's servers that have their proportions of thinkers to talkers."""

PER_REQUEST = 4.2
"""[calibrated] the talker's host time for each request, over that of public runs of a later vLLM-Omni."""


def talker_scale(per_request: float = PER_REQUEST, **more: float) -> str:
    """`scale` for a talker whose host takes so many times as long for each request; with more factors."""
    factors = {"talker.host_s": 0.01, "talker.host_s_per_request": per_request}
    return write_scale(factors | {name: factors.get(name, 1.0) * factor for name, factor in more.items()})


SERVED: dict[str, Any] = {
    "deployment": QWEN,
    "scale": talker_scale(),
    "first_chunk_frames": 25,
    "c_scope": "replica",
    "c_counts": "session",
    "reply_tokens": 12,
    "reply_sigma": 1.5,
}

SHAREGPT: dict[str, Any] = {
    **SERVED,
    "modality": "text",
    "max_prompt_tokens": 2048,
    "requests": 128,
    "rate": 20.0,
}
"""Single turns, typed and answered in speech, offered faster than c lets them in; workload `sharegpt`."""

OPEN_LOOP = {name: value for name, value in SHAREGPT.items() if name not in ("c_scope", "c_counts", "rate")}
"""The same at a `rate` to be set, without slots to wait for."""

BURSTS: dict[str, Any] = {
    **{name: value for name, value in SHAREGPT.items() if name != "rate"},
    "prompt_tokens": 20,
    "prompt_sigma": 1.69,
}
"""The same users with the arrivals of BurstGPT, at a `rate` or `peak_rate` to be set; workload `burstgpt_fit`, whose
own prompts give way to ShareGPT's."""

LONG_TOKENS = 235
"""Text of a reply that lasts for the 65.9 s of Fig. 15 right at the median pace."""

LONG_REPLY: dict[str, Any] = {
    **SERVED,
    "modality": "text",
    "requests": 1,
    "reply_tokens": LONG_TOKENS,
    "reply_sigma": 0,
    "c": 1,
    "p": 0,
}
"""One reply, served alone; workload `sharegpt`."""

LISTENED = (
    "each of the c callers listens to what was asked for, which takes as long under either system; only the wait for "
    "first packets and the breaks can shorten"
)
"""Why LiveServe completes hardly more requests here."""

CURRENT_TURN: dict[str, Any] = {"prefill_ahead_s": 1.0}
"""LiveServe's prefill of the turn that is being said (section 3), where people speak."""

INTERACTIVE: dict[str, Any] = {
    **SERVED,
    "modality": "audio",
    "reply": "speech",
    "sessions": 48,
    "rate": 2.0,
    "rounds": 3,
    "rounds_shape": 100,
    "prompt_sigma": 0.5,
    "opening_tokens": 16000,
    "kv_pool_blocks": 24_576,
    "talker_history": True,
}
"""Spoken sessions that come with 16,000 tokens of context; workload `interactive`. 48 of about 1,020 blocks share a
thinker's pool of 24,576: a pressure ratio (context of all over pool) of 2.0. Talkers keep KV over turns, too (section
5, footnote 1)."""

MIXED: dict[str, Any] = {
    **SERVED,
    "sessions": 24,
    "rate": 2.0,
    "kv_pool_blocks": 24_576,
    "talker_history": True,
}
"""Viewers of videos and voice sessions, half of each; workload `omni_mix`."""


def experiment(
    name: str,
    engines: Sequence[str],
    workload: str,
    settings: Mapping[str, Any],
    timeout_s: float = 600,
    **axes: Any,
) -> Experiment:
    """People who speak in turns, over the seeds that all cards have; `axes` are what it varies."""
    return Experiment(
        name=name,
        engines=list(engines),
        workload=workload,
        set={name: value for name, value in settings.items() if name not in axes},
        grid=axes,
        seeds=SEEDS,
        timeout_s=timeout_s,
    )


def reply_log(point: Measured) -> ReplyLog | None:
    """The reply of a point with one request, in s since the end of the user's turn; None unless heard to its end."""
    row = point.requests.iloc[0].to_dict()
    if row["status"] != COMPLETED:
        return None
    return ReplyLog(TurnLog(point.events(row["session"]), row["turn_end_s"]), row)


def effective_within(ttfp_s: float) -> Callable[[Measured], float | None]:
    """`effective_rps` of the turns that began within `ttfp_s` seconds, 1/s."""

    def quantity(point: Measured) -> float | None:
        numbers = ("spoken", "turn_end_s", "completion_s", "audio_ttfp_s", "max_gap_s")
        turns = {name: point.requests[name].to_numpy(float, na_value=np.nan) for name in numbers}
        return effective_rps(turns | {"status": point.requests["status"].to_numpy()}, ttfp_s)[0]

    return quantity


LIMITS_S = np.linspace(0.25, 2.5, 46)
"""Limits of the TTFP over which effective RPS is drawn: the paper names none."""


def over_limits(axes: Any, points: Sequence[Measured], look: Look, label: str) -> None:
    """Effective RPS over the limit of the TTFP, medians over the seeds."""
    known = {limit: spread(points, effective_within(limit)).median for limit in LIMITS_S}
    shown = {limit: rate for limit, rate in known.items() if rate is not None}
    axes.plot(list(shown), list(shown.values()), **look.stroke, label=label)


def second_turn(point: Measured, session: int, column: str) -> float | None:
    """A column of the request table at the turn with which this session comes back; None where it is missing."""
    requests = point.requests
    found = requests.loc[(requests["session"] == session) & (requests["turn"] == 1), column]
    return float(found.iloc[0]) if len(found) and found.notna().all() else None


def returning(column: str, percentile: float) -> Quantity:
    """A percentile of a column of the request table over turns that are not their session's first.

    First turns bring a session's context, which every system prefills; what KV management does shows in the others.
    """

    def quantity(point: Measured) -> float | None:
        values = point.requests.loc[point.requests["turn"] > 0, column].dropna()
        return float(np.percentile(values, percentile)) if len(values) else None

    return quantity


def trade(
    axes: Any,
    panels: Panels,
    settings: Mapping[Any, Setting],
    across: str,
    up: str,
    look: Look,
    label: str,
) -> dict[Any, tuple[float, float]]:
    """A curve through the medians of one metric over those of another, by what was varied; returns where it goes."""
    points = {each: setting.points(panels) for each, setting in settings.items()}
    found = {
        each: (over_seeds(here, across).median, over_seeds(here, up).median) for each, here in points.items()
    }
    known = {each: (x, y) for each, (x, y) in found.items() if x is not None and y is not None}
    if known:
        axes.plot(*zip(*known.values(), strict=True), **look.joined, label=label)
    return known
