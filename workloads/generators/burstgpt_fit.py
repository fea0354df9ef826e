"""BurstGPT without its file: arrivals and lengths with the statistics of the real log. Workload
`burstgpt_fit`.

Within an hour users come nearly as a Poisson process, but the hours differ: the gaps of the record as a whole
have a coefficient of variation of 2.9 to 4.5. So the rate is drawn anew for each regime, and gaps within one
are Gamma. Both are in units of the mean gap, as a benchmark wants this shape at its own rate.
"""

from __future__ import annotations

from pydantic import Field, model_validator

from workloads.distributions import arrivals, lengths
from workloads.distributions.lengths import Lengths
from workloads.generators.open_loop import SingleTurnParams, single_turns
from workloads.seeds import Streams
from workloads.trace import Trace

# From the answered rows of the first 400 of BurstGPT_1 and of BurstGPT_3. Gaps by the mean gap of their hour:
# CV 1.11 and 1.23. Counts per hour: variance less mean, by mean squared, 2.15 and 1.96, whose mean gives a
# log-spread of sqrt(ln(1 + 2.05)). Requests per hour: 383 in 37,269 s and 399 in 41,453 s.
CV, SWING, REGIME = 1.17, 1.06, 36.0
SOURCE = "first 400 rows of BurstGPT_1 and of BurstGPT_3, CC-BY-4.0"


class BurstGptFitParams(SingleTurnParams):
    """Bursts at a mean rate, or at a rate of the busiest moment, as a comparison with Poisson needs."""

    rate: float | None = Field(None, ge=1e-6, le=1e6, description="mean arrivals per second (default 1)")
    peak_rate: float | None = Field(
        None, gt=0, le=1e6, description="scale time so that the busiest `peak_window_s` has this rate per second"
    )
    peak_window_s: float = Field(10.0, gt=0, le=1e6, description="window of `peak_rate`, s")
    cv: float = Field(CV, ge=0.01, le=100, description="coefficient of variation of the gaps within a regime")
    swing: float = Field(SWING, ge=0, le=3, description="log-spread of the rates of regimes; 0: all alike")
    regime: float = Field(REGIME, ge=1, le=1e6, description="mean number of requests in a regime")

    @model_validator(mode="after")
    def _one_way_to_say_when(self) -> BurstGptFitParams:
        if self.rate is not None and self.peak_rate is not None:
            raise ValueError("rate and peak_rate both set the speed; leave one of them out")
        if self.peak_rate is not None and round(self.peak_rate * self.peak_window_s) > self.requests:
            raise ValueError(
                f"a peak_rate of {self.peak_rate:g} over peak_window_s={self.peak_window_s:g} takes more than "
                f"requests={self.requests}; shorten peak_window_s or raise requests"
            )
        return self

    def _prompt_law(self) -> Lengths:
        return super()._prompt_law() if self.modality == "audio" else lengths.BURSTGPT_REQUEST

    def _reply_law(self) -> Lengths:
        return super()._reply_law() if self.reply == "speech" else lengths.BURSTGPT_RESPONSE


def burstgpt_fit(params: BurstGptFitParams, seed: int) -> Trace:
    """Single turns that come as BurstGPT's users do; typed prompts and written replies have its lengths."""
    streams = Streams(seed)
    rate = 1.0 if params.rate is None else params.rate
    times = arrivals.modulated(streams("arrivals"), rate, params.cv, params.swing, params.regime, params.requests)
    note = f"arrivals: Gamma gaps of CV {params.cv:g}, rates of regimes spread by {params.swing:g} ({SOURCE})"
    if params.peak_rate is not None:
        times = times / arrivals.scale_to_peak(times, params.peak_rate, params.peak_window_s)
        note += f"; the busiest {params.peak_window_s:g} s have {params.peak_rate:g} per second"
    return single_turns("burstgpt_fit", params, streams, times, note)
