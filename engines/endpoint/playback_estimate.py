"""How much of a reply its listener has played by now, from what is reported, or from what was sent."""

from dataclasses import dataclass


@dataclass(slots=True)
class PlaybackEstimate:
    """Follows the playback of one reply; times in s on the loop's clock. `reported`: whether the client reports
    playback at all. `longest_gap_s`: the longest that a player which waits for late audio has been silent.
    """

    sent_s: float = 0.0
    first_s: float | None = None
    reported: bool = False
    longest_gap_s: float = 0.0
    _ends_s: float = 0.0
    _at_s: float = 0.0
    _played_s: float = 0.0
    _playing: bool = False

    def send(self, audio_s: float, now: float) -> float:
        """So much audio leaves for the client; returns how long its player has been silent for want of it, s."""
        if self.first_s is None:
            self.first_s = self._ends_s = now
        gap_s = max(0.0, now - self._ends_s)
        self.longest_gap_s = max(self.longest_gap_s, gap_s)
        self._ends_s += gap_s + audio_s
        self.sent_s += audio_s
        return gap_s

    def report(self, played_s: float, playing: bool, now: float) -> None:
        """The client says how much it has played, and whether it plays on."""
        self.reported, self._at_s, self._played_s, self._playing = True, now, played_s, playing

    def played_s(self, now: float) -> float:
        """Seconds played: the last report, extrapolated while playing, else what a player that waits for late audio
        has played; never more than was sent."""
        if self.reported:
            played_s = self._played_s + (now - self._at_s if self._playing else 0.0)
            return min(played_s, self.sent_s)
        return self.sent_s - max(0.0, self._ends_s - now)
