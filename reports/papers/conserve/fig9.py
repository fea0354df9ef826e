"""Fig. 9: Llama-3.1-8B serving BurstGPT chats with mixed documents as batch jobs: throughput of each system over the
rate."""

from reports.claims.quantities import each, quotient, value
from reports.claims.stated import claim, level, merged, times
from reports.papers.conserve.fig6a import AFTER
from reports.papers.conserve.figures import drawn
from reports.papers.conserve.loads import CHAT, SLO, SMALL_STEP, at, both_sizes, small
from reports.papers.conserve.measures import BY_TARGET, TBT, TPS, TTFT, against, of_optimal, slo_check, tokens
from reports.papers.conserve.precision import of_two, offline
from reports.papers.conserve.systems import DISTSERVE, ONLINE_ONLY, OURS, SARATHI

TITLE = "Fig. 9: Llama-3.1-8B, BurstGPT chats online and mixed documents as batch jobs"

CHAT_RATES = (4, 5, 6)
"""Rates of Llama-3.1-8B, requests/s. The paper states neither them nor Online-Only's TTFT. [calibrated] At 5/s
Non-Preemptive exceeds the paper's offline throughput by as much as in Table 2 (2.4 times)."""

_LOAD = "chat 5"
EXPERIMENTS = merged(
    both_sizes(f"chat {rate}", deployment="llama_8b_h100", rate=float(rate), requests=120 * rate, **CHAT)
    for rate in CHAT_RATES
)
QUICK = {"requests": "120"}

_OPTIMAL = "Sec. A.3, Fig. 9: 2,645 offline tokens/s, 88 % of the optimum"
_BASELINES = "Sec. A.3, Fig. 9: much lower throughput of Sarathi-P, 661 tokens/s, and DistServe-P, 1,034"
_CLOSE = "Sec. A.3, Fig. 9: P99 TTFT and TBT are low, close to Online-Only's"
_BY_RATE = "the rate, which the paper does not state, was chosen by Non-Preemptive's throughput"
CLAIMS = {
    "fig9-optimal": claim(
        "88 % of the optimal offline throughput",
        level(0.88, "%", within=of_two(offline(2645, 2645 / 0.88))),
        of_optimal(_LOAD),
        fact=_OPTIMAL,
        chosen=_BY_RATE,
    ),
    "fig9-tokens": claim(
        "2,645 offline tokens/s (in thousands)",
        level(2.645, within=offline(2645)),
        each(value(TPS, at(_LOAD, OURS)), lambda tps: tps / 1000),
        "{ours:.1f}: with so little capacity for the batch, Online-Only itself would have the tails of an overload",
        fact=_OPTIMAL,
        chosen=_BY_RATE,
    ),
    "fig9-sarathi": claim(
        "against Sarathi-P's 661: × 4.0",
        times(2645 / 661, within=offline(2645, 661)),
        against(TPS, _LOAD, OURS, SARATHI),
        "× {ours:.2f}: Sarathi-P recomputes more of the documents that chats push out, by the seed",
        fact=_BASELINES,
        chosen=_BY_RATE,
    ),
    "fig9-sarathi-tokens": claim(
        "Sarathi-P: 661 offline tokens/s (in thousands)",
        level(0.661, within=offline(661)),
        each(value(TPS, at(_LOAD, SARATHI)), lambda tps: tps / 1000),
        "{ours:.2f}: as for all systems here, more of the GPU is left to the batch than in the paper",
        fact=_BASELINES,
        chosen=_BY_RATE,
    ),
    "fig9-distserve": claim(
        "against DistServe-P's 1,034: × 2.56 (by GPU)",
        times(2645 / 1034, within=offline(2645, 1034)),
        quotient(value(TPS, at(_LOAD, OURS)), tokens(at(_LOAD, DISTSERVE))),
        "× {ours:.2f}: one instance reads prompts all the time and does not fill the other's pool",
        fact=_BASELINES,
        chosen=_BY_RATE,
    ),
    "fig9-distserve-tokens": claim(
        "DistServe-P: 1,034 offline tokens/s (in thousands, by GPU)",
        level(1.034, within=offline(1034)),
        each(tokens(at(_LOAD, DISTSERVE)), lambda tps: tps / 1000),
        "{ours:.1f}: its decode instance has room for documents here, and the paper's preempts them",
        fact=_BASELINES,
        chosen=_BY_RATE,
    ),
    "fig9-ttft": claim(
        "P99 TTFT close to Online-Only's",
        level((0.0, 1.25), "×", words="close"),
        against(TTFT, _LOAD, OURS, ONLINE_ONLY),
        "× {ours:.2f}: as at other loads of this model, " + AFTER,
        fact=_CLOSE,
        chosen=BY_TARGET,
    ),
    "fig9-tbt": claim(
        "P99 TBT close to Online-Only's",
        level((0.0, 1.19), "×", words="close"),
        against(TBT, _LOAD, OURS, ONLINE_ONLY),
        "× {ours:.2f}: the five terms predict a prompt next to a document too short",
        fact=_CLOSE,
        chosen=BY_TARGET,
    ),
    "fig9-slo": slo_check({f"chat {rate}": SLO[f"chat {rate}"] for rate in CHAT_RATES}),
}
draw = drawn(
    TITLE,
    "online requests/s",
    {
        title: {rate: named(f"chat {rate}") for rate in CHAT_RATES}
        for title, named in (("", str), (f"{SMALL_STEP:,} tokens", small))
    },
    "The paper: 2,645 tokens/s of ConServe, 661 of Sarathi-P, 1,034 of DistServe-P (here by half of its GPUs), at a "
    f"rate that it does not state; the claims are at {_LOAD.split()[1]}/s.",
)
