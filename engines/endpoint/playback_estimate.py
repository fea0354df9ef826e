"""How much of a reply its listener has played by now, from what is reported, or from what was sent."""

from dataclasses import dataclass


@dataclass(slots=True)
class PlaybackEstimate:
    """Of one reply; times in s on the loop's clock. `reported`: whether the client reports playback at all."""

    sent_s: float = 0.0
    first_s: float | None = None
    reported: bool = False
    _at_s: float = 0.0
    _played_s: float = 0.0
    _playing: bool = False

    def send(self, audio_s: float, now: float) -> None:
        """So much audio leaves for the client."""
        if self.first_s is None:
            self.first_s = now
        self.sent_s += audio_s

    def report(self, played_s: float, playing: bool, now: float) -> None:
        """The client says how much it has played, and whether it plays on."""
        self.reported, self._at_s, self._played_s, self._playing = True, now, played_s, playing

    def played_s(self, now: float) -> float:
        """Seconds played: the last report, extrapolated while playing, else the time since the first audio was sent;
        never more than was sent."""
        if self.reported:
            played_s = self._played_s + (now - self._at_s if self._playing else 0.0)
        else:
            played_s = now - self.first_s if self.first_s is not None else 0.0
        return min(played_s, self.sent_s)
