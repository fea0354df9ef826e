"""How long callers wait for an answer, against what people and telephone networks are held to. No score.

People answer each other after 0.2 s in the median (Stivers et al., PNAS 106, 2009). A delay T each way adds 2 T to
every pause that a caller hears. So a gap g is heard as somebody who answers after 0.2 s over a line with a one-way
delay of (g - 0.2 s) / 2: one mapping, by which ITU-T G.114 (05/2003) can be read. G.114 holds that most uses are not
affected by up to 150 ms, and that networks should not be planned for more than 400 ms.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.metrics.requests import FAILED

HUMAN_GAP_S = 0.2
"""[config: Stivers et al. 2009, of ten languages: medians from 0 to 0.3 s, most near 0.2 s]"""
LONG_GAP_S = 0.8
"""Beyond which builders of voice agents find that callers notice. [chosen: as in `harness.live.slo`]"""
G114_S = (0.150, 0.400)
"""One-way delay: transparent up to the first, not to be planned for beyond the second. [config: ITU-T G.114]"""


@dataclass(frozen=True)
class Gaps:
    """From the ends of turns to the first sounds of answers. Shares are over `n` turns, a turn that failed is among the
    long ones; the percentiles are over answered ones, s."""

    n: int
    p50_s: float | None
    p90_s: float | None
    p95_s: float | None
    long: float | None
    within: tuple[float | None, float | None]
    """Shares whose one-way delay, by the mapping, is up to each of `G114_S`."""

    @property
    def delay_p50_s(self) -> float | None:
        """The median as a one-way delay; below 0 for an agent faster than people."""
        return None if self.p50_s is None else one_way_delay(self.p50_s)


def one_way_delay(gap_s: float) -> float:
    """The mapping of this module, s."""
    return (gap_s - HUMAN_GAP_S) / 2


def gaps(requests: pd.DataFrame) -> Gaps:
    """Returns the gaps in a request table of turns, or of calls on open microphones."""
    if "end_of_turn_delay_s" in requests:
        found = requests["end_of_turn_delay_s"].to_numpy(float)
        lost = np.zeros(found.size, bool)
    else:
        spoken = requests.loc[requests["spoken"].to_numpy(bool)]
        found = spoken["audio_ttfp_s"].to_numpy(float)
        lost = np.isnan(found) & (spoken["status"] == FAILED).to_numpy()
    known = found[~np.isnan(found)]
    whole = np.concatenate([known, np.full(int(lost.sum()), np.inf)])
    p50_s, p90_s, p95_s = (float(np.percentile(known, p)) if known.size else None for p in (50, 90, 95))

    def share(upto_s: float) -> float | None:
        return float((whole <= upto_s + 1e-9).mean()) if whole.size else None

    within = [share(HUMAN_GAP_S + 2 * delay_s) for delay_s in G114_S]
    short = share(LONG_GAP_S)
    long = None if short is None else 1 - short
    return Gaps(whole.size, p50_s, p90_s, p95_s, long, (within[0], within[1]))
