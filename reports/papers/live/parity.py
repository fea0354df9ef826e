"""Parity: the same users and the same engines, once in virtual time and once over real sockets on the wall clock.

Nothing is shared but the engine's code and the model of its GPUs: over sockets the server is a process of its own, its
clock is the machine's, users are processes with WebSockets, their playback reports and interruptions travel, and what
was heard comes back with `response.done`. The wire has no delay of its own here, so both sides have `network_ms` 0.

The tolerance is 10 % or 5 ms, whichever is wider; for any TTFP above 50 ms that is 10 %.
"""

from reports.papers.prelude import *

TITLE = "Parity: the same calls with barge-in, in virtual time and over real sockets"

ENGINES = ["vllm_omni", "liveserve"]
VIRTUAL, SOCKETS = "virtual time", "real sockets"


def _experiment(device: str) -> Experiment:
    return Experiment(
        name="parity",
        engines=ENGINES,
        workload="speech",
        device=device,
        set={
            "deployment": "qwen3_omni_8gpu",
            "sessions": 64,
            "rate": 8.0,  # all on line within ten seconds [chosen]
            "turns": 8,  # nobody is through before the minute is over [chosen]
            "p": 0.5,
            "max_reply_tokens": 128,  # as `rehearse live` asks for: about 36 s [chosen]
            "network_ms": 0,
            "stop_after_s": 60,
        },
        seeds=[0, 1, 2],
        timeout_s=600,
    )


EXPERIMENTS = {VIRTUAL: _experiment("virtual"), SOCKETS: _experiment("sockets")}
QUICK = {"sessions": "16", "stop_after_s": "20"}

_TOLERANCE = 0.1
_SAID = {
    "audio_ttfp_p50": "median TTFP",
    "audio_ttfp_p90": "P90 TTFP",
    "wasted_token_ratio": "share of wasted tokens",
}
_WHY = (
    "messages wait for the event loops of server and clients, which share this machine's cores; how late the load "
    "generator itself was stands beside each point"
)


def _same(metric: str, engine: str) -> Claim:
    return claim(
        f"{_SAID[metric]} of {engine}, over sockets / in virtual time",
        level(1.0, "×", within=_TOLERANCE),
        ratio(metric, of(SOCKETS, engine), to=of(VIRTUAL, engine)),
        _WHY,
    )


_SIDES = ((VIRTUAL, ":", 3.0, "#b9c3cf"), (SOCKETS, "-", 1.4, "#4a5666"))
"""Line and width of each side; and as a bar, below which its engine stands, its grey."""

CLAIMS = {f"{engine}-{metric}": _same(metric, engine) for metric in _SAID for engine in ENGINES}


@picture(TITLE, 1, len(ENGINES) + 1, 3.2, bars=True)
def draw(panels: Panels, paper: Any, *axes: Any) -> str | LeftOut:
    """The distribution of the TTFP of each engine on both sides, and its waste."""
    *distributions, waste = axes
    answered = 0
    shares: dict[str, tuple[list[Spread], Look]] = {}
    for (engine, look), own in zip(engine_looks(*ENGINES).items(), distributions, strict=True):
        for side, line, width, grey in _SIDES:
            points, side_look = of(side, engine).points(panels), replace(look, line=line, width=width)
            answered += cdf(own, points, "audio_ttfp_s", side_look, side, 1000)
            spreads, _ = shares.setdefault(side, ([], replace(side_look, colour=grey)))
            spreads.append(over_seeds(points, "wasted_token_ratio"))
        own.set_title(engine, color=look.colour, weight="bold")
        own.set(xlabel="TTFP, ms", xlim=(0, None))
        in_per_cent(own)
    if not answered:
        return LeftOut("parity", TITLE, "no turn of these points was answered")
    bars(waste, ENGINES, shares, factor=100)
    waste.set_title("wasted tokens, %")
    distributions[0].set_ylabel("share of turns")
    waste.figure.legend(handles=_handles(), loc="outside lower left", ncols=4)
    return (
        "Left, the share of turns whose first audio came within the time on the horizontal axis; where the thin line "
        "covers the dotted one, sockets and virtual time agree. Right, what was generated and never heard, over all "
        f"that was generated: pale in virtual time, full over sockets. {_slip(panels)}".rstrip()
    )


def _handles() -> list[Any]:
    from matplotlib.lines import Line2D

    return [Line2D([], [], color=INK, ls=line, lw=width, label=side) for side, line, width, _ in _SIDES]


def _slip(panels: Mapping[str, Run]) -> str:
    """How late the load generator was, over the points that count."""
    points = [point for engine in ENGINES for point in of(SOCKETS, engine).points(panels)]
    known = [slip for point in points if (slip := point.value("send_slip_p99")) is not None]
    if not known:
        return ""
    low, high = (f"{1000 * end:.1f}" for end in (min(known), max(known)))
    return f"The P99 of the send slip was {low if low == high else f'{low} to {high}'} ms a run."
