"""The vocabulary of live runs beside the ordinary: how good the load was, and what only sockets can lose.

A send is one message or request of a client. Its slip is how much later it went than the plan, or than the connection
that had to be ready for it. Sources of the wording: `harness.endpoints.logs`, `harness.live.run.floor`.
"""

from harness.metrics.definitions import Definition

_SENDS = "over all messages and requests that clients sent"
_START = "from the start of the run"
_TURNS = "over all turns that users started"
_BATCH = "over the time of the steady window, at the client; 0 where none was asked for"
_NULL = "measured against the null server just before, with as many sessions and processes"

GAPS_MS = (250, 500)
"""Pauses beside the 100 ms of `continuity`, ms: a stumble that many miss, and one that nobody does. [chosen]"""

LIVE_DEFINITIONS: dict[str, Definition] = {
    **{
        f"send_slip_{statistic}": Definition(
            "s",
            f"{text} of the send slip: how late the load generator sent, which no server is to blame for; "
            "a point with more than 5 % of its sends later than slip_limit_ms is INVALID",
            _SENDS,
            "lower",
        )
        for statistic, text in (("p50", "P50"), ("p99", "P99"), ("p999", "P99.9"), ("max", "largest"))
    },
    "sends": Definition("1", "messages and requests sent", _SENDS, None),
    "sends_late": Definition("1", "of these, sent later than slip_limit_ms allows", _SENDS, "lower"),
    "requests_repeated": Definition(
        "1",
        "requests that were sent a second time, as the server had just closed the kept connection: load that is not in "
        "the plan",
        "over all requests that clients sent",
        "lower",
    ),
    "early_replies": Definition(
        "1",
        "replies that began before the caller had finished speaking, as the server took a pause for the end; they have "
        "no time to first audio",
        "over the turns that metrics are over",
        "lower",
    ),
    "tokens_stated": Definition(
        "1",
        "share of written replies whose number of tokens the server states; in times between tokens a message of any "
        "other counts as one token",
        "over completed turns whose reply is not spoken",
        None,
    ),
    **{
        f"connect_{statistic}": Definition(
            "s",
            f"{statistic.upper()} of the time to a session that is ready: TCP, TLS, handshake and greetings; missing "
            "counts sessions that came and were never ready",
            "from the attempt to connect",
            "lower",
        )
        for statistic in ("p50", "p99")
    },
    "shed": Definition("1", "sessions that the server did not let in", "at the client", None),
    "disconnects": Definition(
        "1", "sessions whose connection the server closed or lost", "over the run", "lower"
    ),
    "steady_begin": Definition(
        "s",
        "begin of the steady window: when the last of the c users had come; in an open loop 0. Metrics of turns are "
        "over those whose user's turn ends, and whose request so goes out, in this window",
        _START,
        None,
    ),
    "steady_end": Definition(
        "s",
        "end of the steady window: when the last new turn may begin, or nobody is left to take the place of a user who "
        "goes",
        _START,
        None,
    ),
    "on_line_mean": Definition(
        "1", "concurrent sessions, on average", "over the time of the steady window, at the client", None
    ),
    "sessions_rps": Definition(
        "1/s",
        "sessions that came, per second; in an open loop what became of the rate that was asked for",
        "over the time of the steady window, at the client",
        None,
    ),
    "turns_in_ramp": Definition(
        "1", "turns left out of all metrics because they were asked before the steady window", _TURNS, None
    ),
    "turns_in_drain": Definition(
        "1", "turns left out of all metrics because they were asked after the steady window", _TURNS, None
    ),
    **{
        f"server_lag_{statistic}": Definition(
            "s",
            f"{text} of how late the server's own loop ran its timers, where a server of ours tells it; a point whose "
            "P99 exceeds slip_limit_ms is INVALID: its machine starved it",
            "over the timers of its loop, one each 10 ms, in the steady window",
            "lower",
        )
        for statistic, text in (("p99", "P99"), ("max", "largest"))
    },
    "floor_slip_p99": Definition("s", "P99 of the send slip of the generator itself", _NULL, "lower"),
    **{
        f"floor_ttfp_bias_{statistic}": Definition(
            "s",
            f"{statistic.upper()} of the time to the first answer as the client reports it, less the server's own",
            _NULL,
            "lower",
        )
        for statistic in ("p50", "p99")
    },
    **{
        f"continuity_{gap_ms}ms": Definition(
            "1",
            f"share of spoken replies without a pause beyond {gap_ms} ms; a reply that failed has one. `continuity` is "
            "the same at 100 ms",
            "over spoken turns that were not interrupted, in a player that waits for late packets",
            "higher",
        )
        for gap_ms in GAPS_MS
    },
    "audio_received_s": Definition(
        "s", "seconds of audio received, those after a barge-in included", "over started turns", None
    ),
    "wasted_audio_ratio": Definition(
        "1",
        "audio received and not heard over audio received; it needs nothing from the server",
        "over completed and barged-in turns",
        "lower",
    ),
    "lost_sessions": Definition(
        "1",
        "sessions open when their load generator was lost; the turn under way of each, or its next one, counts as "
        "failed",
        "over the run",
        "lower",
    ),
    "batch_tps": Definition(
        "1/s",
        "text tokens of batch documents that arrived, per second, in whichever document; by the usage that the server "
        "reports, where several come in one message",
        _BATCH,
        "higher",
    ),
    "batch_in_flight": Definition("1", "batch documents in flight, on average", _BATCH, None),
    "batch_completed": Definition("1", "batch documents whose reply ended by itself", _BATCH, "higher"),
    "batch_failed": Definition(
        "1", "batch documents that the server refused or whose reply ended otherwise", _BATCH, "lower"
    ),
    "batch_cut": Definition(
        "1", "batch documents under way when the last user had gone, which did not fail", "at that time", None
    ),
    "batch_slip_p99": Definition(
        "s",
        "P99 of the send delay of batch requests; a point with more than 5 % of them late is INVALID",
        "over all documents",
        "lower",
    ),
}
"""Every metric that `harness.metrics.live_summary.summarise_live` returns, in its order."""
