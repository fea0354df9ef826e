"""A server's knowledge of the listeners of calls, in the terms that policies for listeners read.

A call reports no playback. Its own frames tell the time: audio of the user and of the reply run on one clock. With each
complete frame the listener has heard the audio returned before, at normal speed and without a pause unless audio was
missing. Speech is counted by the model's seconds per text token, as no talker makes it here.
"""

import asyncio

from engines.core.request import StageRequest
from engines.turns.monitor import Ack, Monitor
from engines.turns.reply import Progress, SpeechView


class CallListeners:
    """Takes in frames and returned tokens; shows requests as `SpeechView`. A session is one endless reply."""

    def __init__(self, speech_s_per_token: float, frame_s: float) -> None:
        self.monitor = Monitor(speech_s_per_token)
        self._token_s = speech_s_per_token
        self._frame_s = frame_s
        self._returned: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._loop = asyncio.get_running_loop()

    def opened(self, session: int) -> None:
        """Note that the call has begun; it waits for its first audio."""
        self._returned[session] = self._before[session] = 0
        self.monitor.turn_committed(session, 0, self._loop.time())

    def framed(self, session: int) -> None:
        """Note a frame's complete audio: since the one before, the listener has heard a frame's length at most."""
        view, now = self.monitor.view(session, self._loop.time()), self._loop.time()
        if view.first_audio_s is not None:
            played_s = min(view.audio_sent_s, view.played(now))
            self.monitor.playback_ack(session, Ack(now, 0, played_s, played_s < view.audio_sent_s))

    def returned(self, session: int, tokens: int) -> None:
        if tokens:
            self._returned[session] += tokens
            now = self._loop.time()
            first = self.monitor.view(session, now).first_audio_s is None
            self.monitor.audio_sent(session, 0, tokens * self._token_s, now)
            if first:
                self.monitor.playback_ack(session, Ack(now, 0, 0.0, True))

    def renewed(self, session: int, tokens: int) -> None:
        """Note that the session's request was replaced by one that counts from 0, after `tokens` in all."""
        self._before[session] = tokens

    def closed(self, session: int) -> None:
        self.monitor.close(session)
        self._returned.pop(session, None)
        self._before.pop(session, None)

    def view(self, request: StageRequest, now: float) -> SpeechView:
        """Return a session's request with its produced and returned tokens; a frame of audio counts as one token's."""
        session = request.session
        tokens = self._before.get(session, 0) + request.produced
        returned = self._returned.get(session, 0)
        progress = Progress(True, 0, self._token_s, tokens, text_arrived=tokens, frames=returned, frames_sent=returned)
        return SpeechView(request.id, request.arrive_s, progress=progress, session=self.monitor.view(session, now))
