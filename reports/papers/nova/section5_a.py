"""Section V-A: how much the alphas of equation (5) matter, and which chunk is Chunk's best."""

from collections.abc import Callable

from reports.claims.claim import Untold
from reports.claims.quantities import Measure, Setting, largest, of, quotient, ratio, smallest, value
from reports.claims.stated import claim, level, merged, times
from reports.figures.forms import figure, lines
from reports.papers.nova.common import CHUNKED, E2E, NEAR, OURS, Changed, gui, unchanged
from reports.papers.nova.errors import near_saturation, with_errors

TITLE = "Section V-A: mean latency over alpha of equation (5), and over the tokens of a chunk"

RATES = (0.4, 0.6, 0.8)
ALPHAS, CHUNKS, BEST = (2, 4, 6, 8), (64, 128, 256, 512), 128
CHUNKING = "chunks"
_ALPHA = {alpha: {"alpha_vision": alpha, "alpha_prefill": alpha} for alpha in ALPHAS}
_NEAR = [rate for rate in RATES if rate in NEAR]
EXPERIMENTS = {
    **{f"alpha = {alpha}": gui(f"alpha-{alpha}", [OURS], RATES, **both) for alpha, both in _ALPHA.items()},
    CHUNKING: gui(CHUNKING, [CHUNKED], RATES, chunk_tokens=[*CHUNKS]),
    **merged(with_errors(f"alpha = {alpha}", f"alpha-{alpha}", OURS, _NEAR, **both) for alpha, both in _ALPHA.items()),
    **with_errors(CHUNKING, CHUNKING, CHUNKED, _NEAR, chunk_tokens=BEST),
}
QUICK = {"requests": "120"}


def _alpha(alpha: int, rate: float) -> Setting:
    return of(f"alpha = {alpha}", OURS, rate=rate)


def _chunk(tokens: int, rate: float) -> Setting:
    return of(CHUNKING, CHUNKED, chunk_tokens=tokens, rate=rate)


def _spread(rate: float, changed: Changed = unchanged) -> Measure:
    """The largest mean latency of any alpha over the smallest."""
    latencies = [value(E2E, changed(_alpha(alpha, rate))) for alpha in ALPHAS]
    return quotient(largest(*latencies), smallest(*latencies))


def _next_best(rate: float, changed: Changed = unchanged) -> Measure:
    """The smallest mean latency of another chunk over that of 128 tokens."""
    ours = changed(_chunk(BEST, rate))
    return smallest(*(ratio(E2E, _chunk(other, rate), to=ours) for other in CHUNKS if other != BEST))


def _untold(whose: str, measure: Callable[[float, Changed], Measure], rate: float) -> Untold | None:
    return near_saturation(whose, lambda changed: measure(rate, changed)) if rate in NEAR else None


_SELDOM = "alpha gives SMs for each further waiting request, and at 0.4 requests/s there is rarely one"
STABLE = "Sec. V-A: alphas between 2 and 8 are stable"
OPTIMAL = "Sec. V-A: 128 tokens are Chunk's optimal budget"
CLAIMS = {
    **{
        f"section5-a-alpha-{rate:g}": claim(
            f"at {rate:g} requests/s the alphas from 2 to 8 do alike (largest mean latency over the smallest)",
            level((1.0, 1.1), "×", words="stable"),
            _spread(rate),
            "the smaller alpha, the longer decode keeps SMs that a queue of screenshots needs",
            fact=STABLE,
            check=_SELDOM if rate == RATES[0] else "",
            untold=_untold("Nova", _spread, rate),
            remark="one alpha for both stages; stable is within 10 % [chosen], as the paper gives no number",
        )
        for rate in RATES
    },
    **{
        f"section5-a-chunk-{rate:g}": claim(
            f"at {rate:g} requests/s Chunk is best with 128 tokens a step (best of 64, 256 and 512 over it)",
            times((1.001, 10.0), words="the best"),
            _next_best(rate),
            "in overload 512 tokens a step serve 4 % more, at a time between tokens of 280 ms for 88",
            fact=OPTIMAL,
            untold=_untold("Chunk with 128 tokens", _next_best, rate),
        )
        for rate in RATES
    },
}

_NAMES = {f"{rate:g} requests/s": rate for rate in RATES}
draw = figure(
    TITLE,
    lines(
        E2E,
        {name: {alpha: _alpha(alpha, rate) for alpha in ALPHAS} for name, rate in _NAMES.items()},
        yscale="log",
        xlabel="Nova: alpha, SMs for each further request",
        xticks=ALPHAS,
        ylabel="mean latency, s",
    ),
    lines(
        E2E,
        {name: {tokens: _chunk(tokens, rate) for tokens in CHUNKS} for name, rate in _NAMES.items()},
        yscale="log",
        doubling=CHUNKS,
        xlabel="Chunk: tokens of a step",
    ),
    caption="",
)
