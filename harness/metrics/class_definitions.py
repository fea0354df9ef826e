"""The vocabulary of request classes: metric M of class C is called `C.M`, such as `online.ttft_p90`.

No class has a dot in its name and no other metric has one, so a name says by itself whose number it is.
"""

from harness.metrics.definitions import DEFINITIONS, DISTRIBUTIONS, Definition

SEPARATOR = "."

_TTFT, _TBT = DISTRIBUTIONS["ttft"].meaning, DISTRIBUTIONS["tbt"].meaning
_DUE = (
    "over the class's started requests with such a deadline, failed and unfinished ones as missed, without those that "
    "were aborted with their pool"
)
_SPAN = (
    "per second from the class's first start of a request to its last completion or end of a user's turn; to the end "
    "of the run when one never ended"
)

CLASS_DEFINITIONS: dict[str, Definition] = {
    **{
        f"ttft_{p}": Definition(
            _TTFT.unit, f"{p.upper()} of the {_TTFT.definition}", _TTFT.origin, _TTFT.better
        )
        for p in ("p50", "p90", "p99")
    },
    "ttft_max": Definition(_TTFT.unit, f"longest {_TTFT.definition}", _TTFT.origin, _TTFT.better),
    **{
        f"tbt_{p}": Definition(
            _TBT.unit, f"{p.upper()} over requests: {_TBT.definition}", _TBT.origin, _TBT.better
        )
        for p in ("p50", "p99")
    },
    **{
        f"itl_{p}": Definition(
            "s",
            f"{p.upper()} over all times between two text messages, those of all requests together: vLLM's inter-token "
            "latency, ConServe's TBT; tbt is over requests, each with its mean",
            "from text message to text message, at the client; n is the times",
            "lower",
        )
        for p in ("p50", "p99")
    },
    "ttft_in_deadline": Definition(
        "1",
        "share of requests whose first text token came within their ttft_deadline_s; missing counts those, also in n, "
        "of which none came",
        _DUE,
        "higher",
    ),
    "tbt_in_deadline": Definition(
        "1",
        "share of requests that ended with no time between two text messages above their tbt_deadline_s; missing "
        "counts those, also in n, that never ended",
        _DUE,
        "higher",
    ),
    "tbt_p99_in_deadline": Definition(
        "1",
        "the same share when 1 % of the times between a reply's tokens may be longer; tokens of one message come "
        "together",
        _DUE,
        "higher",
    ),
    "deadlines_met": Definition(
        "1",
        "share of requests that ended and met every deadline they have; missing counts those, also in n, that never "
        "ended",
        "over the class's started requests with a deadline",
        "higher",
    ),
    "goodput_rps": Definition(
        "1/s",
        "requests that ended and met every deadline they have, of which a batch class may have none",
        f"{_SPAN}; n is the class's started requests",
        "higher",
    ),
    "output_tps": Definition(
        "1/s",
        "text tokens generated for the class's requests",
        f"{_SPAN}; n is the requests of which it is known",
        "higher",
    ),
    "tps": Definition(
        "1/s",
        "tokens of prompts and replies processed, each once: a reply's as they come to the client, a prompt's with the "
        "first of them; nothing of failed requests, of what was computed again or of earlier turns",
        "per second in the steady state: from when a tenth of the requests of the most urgent class has come to the "
        "last arrival of one, the same for every class",
        "higher",
    ),
    "pool_dry_s": Definition(
        "s",
        "time for which the class's pool was not full, as the trace held no more for it: above 0 the server had too "
        "little to do",
        "within the same window; missing where the class has no pool",
        "lower",
    ),
    "completed": Definition(
        "1", "requests whose reply ended by itself", "over the class's started requests", "higher"
    ),
    "aborted": Definition(
        "1",
        "requests that were under way when their pool ended, with the last of no pool; they are no failures and miss "
        "no deadline",
        "over the class's started requests",
        None,
    ),
    "preemptions": DEFINITIONS["preemptions"],
    "priority": Definition(
        "1",
        "lowest priority of its requests, the most urgent; the lower is served first",
        "as the trace says",
        None,
    ),
}
"""Definitions of the metrics of every class, by `by_class` and `of_log` of `harness.metrics.class_metrics`. Their names
have no class yet."""


def in_class(name: str, metric: str) -> str:
    """Return the name of a metric of a class."""
    return f"{name}{SEPARATOR}{metric}"


def split(metric: str) -> tuple[str, str] | None:
    """Class and metric of such a name; None for any other."""
    name, dot, own = metric.partition(SEPARATOR)
    return (name, own) if name and dot and own in CLASS_DEFINITIONS else None
