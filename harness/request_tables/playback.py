"""The playback that a listener hears: a player that starts at the first packet and pauses when it runs dry.

The simulated client feeds it packet by packet, the metrics feed it a whole reply: both hear the same thing.

Two projects measure "underrun" differently on the same packets, and both forms are published here:

* *pause on underrun* (LiveServe, continuous when no playback gap exceeds 100 ms; SGLang-Omni): the player
  waits for the late packet and then goes on. Packet j leaves a gap of `max(0, t_j - end_s)`, with `end_s`
  the time at which the audio received before it ends.
* *fixed timeline* (vLLM-Omni, `benchmarks/audio_continuity.py`, `audio_underrun_s`): the player never
  pauses, so lateness accumulates: `max_j max(0, (t_j - t_0) - audio received before j)`.

The gaps of the pausing player add up to the worst lateness on the fixed timeline: with d_j = t_j - (audio before j),
gap_j is by how much d_j exceeds the largest d so far, and the fixed underrun is max d - d_0. So one pass yields both.
"""

from math import inf, nan

CONTINUITY_GAP_S = 0.100
"""Longest interruption that still counts as continuous, in s; the bound itself passes, as in vLLM-Omni."""

_ROUNDING_S = 1e-9  # a gap of exactly the bound must not fail through the last bits of a time stamp


def is_continuous(interruption_s: float) -> bool:
    """Return whether an interruption of this length (s; largest gap or fixed-timeline underrun) goes unnoticed."""
    return interruption_s <= CONTINUITY_GAP_S + _ROUNDING_S


class Playback:
    """Playback of one reply. Times are seconds on the listener's clock, audio is in seconds of sound."""

    __slots__ = ("end_s", "last_packet_s", "max_gap_s", "packets", "start_s", "total_s", "underrun_fixed_s")

    def __init__(self) -> None:
        self.packets = 0
        """Non-empty packets received."""
        self.total_s = 0.0
        """Audio received."""
        self.start_s = nan
        """Time of the first packet, at which playback starts; NaN before it."""
        self.last_packet_s = -inf
        """Time of the latest packet; -inf before the first."""
        self.end_s = -inf
        """Time at which all audio received so far ends; -inf before the first packet."""
        self.max_gap_s = 0.0
        """Longest pause so far."""
        self.underrun_fixed_s = 0.0
        """Worst lateness so far on the fixed timeline (vLLM-Omni's `audio_underrun_s`): sum of the gaps."""

    def arrive(self, t: float, audio_s: float) -> float:
        """Receive `audio_s` seconds of sound at `t` and return the gap (s) that the listener sat through.

        Empty packets neither start playback nor end a pause. Raises ValueError when `t` is before the
        latest packet.
        """
        if t < self.last_packet_s:
            raise ValueError(f"packet at {t} s arrives before the previous one at {self.last_packet_s} s")
        if audio_s <= 0:
            return 0.0
        gap_s = 0.0
        if self.packets == 0:
            self.start_s = self.end_s = t
        elif t > self.end_s:
            gap_s = t - self.end_s
            self.end_s = t
            self.max_gap_s = max(self.max_gap_s, gap_s)
            self.underrun_fixed_s += gap_s
        self.packets += 1
        self.last_packet_s = t
        self.end_s += audio_s
        self.total_s += audio_s
        return gap_s

    def played(self, t: float) -> float:
        """Return the seconds heard by `t`, which must not be before the latest packet (ValueError)."""
        if t < self.last_packet_s:
            raise ValueError(f"asked what was heard by {t} s, before the latest packet at {self.last_packet_s} s")
        return max(0.0, self.total_s - max(0.0, self.end_s - t))
