"""Table I: each stage by itself on an RTX A6000."""

from reports.claims.quantities import of, value
from reports.claims.stated import claim, level
from reports.papers.nova.common import ALONE_ONLY, BY_ITSELF, DEVICE, LIMIT, gui, mean_pass_s

TITLE = "Table I: seconds of vision, prefill and decode alone, CogAgent-9B on one RTX A6000"

TEN = "ten at once"
EXPERIMENTS = ALONE_ONLY | {TEN: gui("ten", [LIMIT], [100.0], requests=10, decode_threshold=10)}
QUICK = {"requests": "10"}

CLAIMS = {
    "table1-vision": claim(
        "vision takes 806.8 ms",
        level(0.8068, "ms", DEVICE),
        value(mean_pass_s("vision"), BY_ITSELF),
        fitted="0.6075 of peak arithmetic was fitted to it and to prefill, one number for both",
    ),
    "table1-prefill": claim(
        "prefill takes 324.1 ms",
        level(0.3241, "ms", DEVICE),
        value(mean_pass_s("prefill"), BY_ITSELF),
        fitted="0.6075 of peak arithmetic was fitted to it and to vision, one number for both",
    ),
    "table1-decode": claim(
        "a decode iteration takes 28.9 ms",
        level(0.0289, "ms", DEVICE),
        value(mean_pass_s("decode"), BY_ITSELF),
        fitted="0.79 of peak bandwidth was fitted to it",
    ),
    "table1-decode-ten": claim(
        "of ten requests 30.6 ms (section III-C)",
        level(0.0306, "ms", DEVICE),
        value(mean_pass_s("decode", 10), of(TEN, LIMIT)),
        "the KV of nine more requests and nothing else",
    ),
}
