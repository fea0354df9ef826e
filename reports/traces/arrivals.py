"""Arrivals of users: counts over time and the gaps between them, compared with the law they were drawn from, another
trace, or a Poisson process."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import gamma as gamma_function

from reports.figures.drawing import legend, plain, plain_log, sheet
from reports.figures.picture import LeftOut, Picture
from reports.traces.trace_figures import LAW, Shown, probabilities, survival, thinned
from workloads.distributions.arrivals import weibull_shape
from workloads.statistics.describe import dispersion, gap_cv, lag_1, rate, scheduled
from workloads.trace import Trace

ARRIVALS, GAPS = "Arrivals over time", "Gaps between arrivals"
WINDOWS = (12, 60)
"""Fewest and most windows, about, of some 4 arrivals each; their length is 1, 2 or 5 times a power of ten."""
_CHANGED = re.compile(r", of [0-9a-f]{16}$")
"""Endings of the notes of traces that were thinned, cut or looped (workloads.transform)."""

Law = tuple[str, Any]
"""Name of the law, and the frozen distribution of scipy.stats."""


def _poisson(rate: float) -> Law:
    return f"Poisson law with a rate of {rate:g}/s", stats.expon(scale=1 / rate)


def _gamma(rate: float, cv: float) -> Law:
    return f"Gamma law with a rate of {rate:g}/s, CV {cv:g}", stats.gamma(1 / cv**2, scale=cv**2 / rate)


def _weibull(rate: float, cv: float) -> Law:
    shape = weibull_shape(cv)
    scale = 1 / (rate * gamma_function(1 + 1 / shape))
    return f"Weibull law with a rate of {rate:g}/s, CV {cv:g}", stats.weibull_min(shape, scale=scale)


LAWS = {
    **dict.fromkeys(("poisson", "sharegpt", "voice", "speech", "interactive", "gui"), _poisson),
    "gamma": _gamma,
    "weibull": _weibull,
}
"""Workloads whose scheduled arrivals have gaps of one law."""


def arrivals(traces: Sequence[Shown]) -> Picture | LeftOut:
    """Cumulative arrivals, and arrivals per window with the range in which Poisson counts would lie."""
    times = {one.label: scheduled(one.trace) for one in traces}
    first = times[traces[0].label]
    if rate(first) is None:
        return LeftOut("arrivals", ARRIVALS, "all its arrivals are at one instant")
    figure, (total, counts) = sheet(2, ARRIVALS, 2.3, 1)
    total.sharex(counts)
    window_s = _window(max(t[-1] - t[0] for t in times.values()), len(first))
    for one in traces:
        since = times[one.label] - times[one.label][0]
        at = thinned(since)
        total.step(since[at], at + 1, where="post", color=one.colour, lw=1.6, label=one.label)
        full = max(1, int(since[-1] / window_s))
        held = np.bincount((since / window_s).astype(int))[:full]
        counts.stairs(held, np.arange(full + 1) * window_s, color=one.colour, lw=1.2)
    mean = (rate(first) or 0.0) * window_s
    low, high = stats.poisson.interval(0.95, mean)
    counts.axhspan(low, high, color=traces[0].colour, alpha=0.13, lw=0)
    counts.axhline(mean, color=traces[0].colour, lw=0.9, ls=(0, (4, 3)))
    total.plot([0, first[-1] - first[0]], [1, len(first)], color=traces[0].colour, lw=0.9, ls=(0, (4, 3)))
    total.set_ylabel("arrivals so far")
    counts.set(ylabel=f"arrivals per {window_s:,g} s", ylim=(0, None))
    total.tick_params(labelbottom=False)
    for axis in (total.yaxis, counts.yaxis, counts.xaxis):
        plain(axis)
    counts.margins(x=0.01)
    counts.set_xlabel("time since the first arrival, s")
    if len(traces) > 1:
        total.legend(loc="upper left")
    caption = (
        f"Turns with a scheduled arrival: each session's first, all of a replay (n = {len(first):,}). The "
        f"dashed line is a constant rate of {rate(first):.3g} per second; the band holds 95 % of the counts "
        "of a Poisson process of that rate. A last window that is not full is left out."
    )
    return Picture("arrivals", ARRIVALS, figure, caption)


def _window(span_s: float, arrivals: int) -> float:
    steps = np.outer(10.0 ** np.arange(-4, 9), [1, 2, 5]).ravel()
    return float(steps[np.argmin(np.abs(np.log(steps * np.clip(arrivals / 4, *WINDOWS) / span_s)))])


def gaps(traces: Sequence[Shown]) -> Picture | LeftOut:
    """Survival function, quantiles against the reference, index of dispersion over the length of windows."""
    times = [scheduled(one.trace) for one in traces]
    if any(rate(t) is None or len(t) < 3 for t in times):
        return LeftOut("gaps", GAPS, "fewer than three arrivals at different instants")
    spread = [_dispersions(t) for t in times]
    if not any(np.isfinite(index).any() for _, index in spread):
        return LeftOut("gaps", GAPS, "too few arrivals for an index of dispersion")
    figure, (tail, quantiles, windows) = sheet(3, GAPS, 3.2, 3)
    label, law = _law(traces[0].trace, times[0])
    for one, t, (lengths, index) in zip(traces, times, spread, strict=True):
        tail.step(*survival(np.diff(t)), where="pre", color=one.colour, label=one.label)
        windows.plot(lengths, index, color=one.colour)
    between = np.diff(times[0])
    x = np.linspace(0, between.max(), 300)
    tail.plot(x, law.sf(x), color=LAW, lw=1, ls=(0, (4, 3)), label=label)
    p = probabilities(len(between))
    against = np.quantile(np.diff(times[1]), p, method="inverted_cdf") if len(traces) > 1 else law.ppf(p)
    name = traces[1].label if len(traces) > 1 else "the law"
    ours = np.quantile(between, p, method="inverted_cdf")
    seen = (ours > 0) & (against > 0)
    quantiles.loglog(against[seen], ours[seen], "o", ms=3, mew=0, color=traces[0].colour)
    ends = [min(against[seen].min(), ours[seen].min()), max(against[seen].max(), ours[seen].max())]
    quantiles.plot(ends, ends, color=LAW, lw=0.9, ls=(0, (4, 3)))
    tail.set(yscale="log", xlabel="gap, s", ylabel="share of gaps at least as long")
    tail.set_ylim(0.5 / len(between), 1.5)
    tail.set_xlim(left=0)
    quantiles.set(xlabel=f"quantile of {name}, s", ylabel="quantile of the gaps, s")
    windows.axhline(1, color=LAW, lw=0.9, ls=(0, (4, 3)))
    windows.set(xscale="log", yscale="log", xlabel="length of the window, s", ylabel="index of dispersion")
    low, high = windows.get_ylim()
    windows.set_ylim(min(low, 0.5), max(high, 2))
    for axis in (tail.yaxis, quantiles.xaxis, quantiles.yaxis, windows.xaxis, windows.yaxis):
        plain_log(axis)
    legend(figure, ncols=3)
    return Picture("gaps", GAPS, figure, _caption(times[0], label, law, name))


def _law(trace: Trace, times: np.ndarray) -> Law:
    """The law that the generator drew the gaps from, or a Poisson process of the same rate."""
    params, generator = trace.header.params, trace.header.generator
    if generator in LAWS and not any(_CHANGED.search(note) for note in trace.header.notes):
        return LAWS[generator](**{name: params[name] for name in ("rate", "cv") if name in params})
    mean_rate = rate(times) or 1.0
    return f"Poisson law with its own rate of {mean_rate:.3g}/s", stats.expon(scale=1 / mean_rate)


def _dispersions(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Windows from the mean gap to a twentieth of the span, and the index of dispersion in each."""
    span = times[-1] - times[0]
    lengths = np.geomspace(span / len(times), max(span / 20, 2 * span / len(times)), 30)
    index = np.array([dispersion(times, length) or np.nan for length in lengths.tolist()])
    return lengths, index


def _caption(times: np.ndarray, label: str, law: Any, name: str) -> str:
    gaps = np.diff(times)
    values, counts = np.unique(gaps.round(6), return_counts=True)  # times are rounded to whole microseconds
    distance = float(np.abs(np.cumsum(counts) / len(gaps) - law.cdf(values + 0.5e-6)).max())
    correlation = lag_1(times)
    zero = np.mean(gaps == 0)
    text = (
        f"Left: share of gaps of at least this length. Middle: quantiles against those of {name}; "
        "equal ones lie on the dashed line. Right: variance of the counts in a window divided by "
        "their mean; 1 for Poisson, and where the line rises, bursts are longer than the window. n = "
        f"{len(gaps):,} gaps, CV {gap_cv(times):.3g}, lag-1 correlation "
        f"{'unknown' if correlation is None else f'{correlation:.2f}'}; Kolmogorov–Smirnov distance "
        f"{distance:.3f} from the {label}."
    )
    if zero < 0.01:
        return text
    return f"{text} {zero:.0%} of the gaps are 0: times are coarse, or users come together."
