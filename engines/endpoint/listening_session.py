"""A session whose microphone may be open: the server finds the turns in the sound by itself."""

from random import Random

from engines.endpoint.base_session import SessionContext
from engines.endpoint.lengths import Hint, hint_from
from engines.endpoint.protocol import Incoming, Outbox, Refusal
from engines.endpoint.realtime_session import RealtimeSession
from engines.endpoint.turn_detection import Detection, Interruption, ServerVad
from engines.endpoint.user_turn import Buffer
from engines.endpoint.vad import FRAME_S, OF_FRAMES, Vad
from engines.turn_taking.detector import Decision, TurnDetector
from engines.turn_taking.endpointing import TIMEOUTS_S, Endpointing, InterruptionGate, SilenceTimeout, SimulatedSemantic
from engines.turns.gateway import Gateway


class Listening:
    """An open microphone: turns each 20 ms of sound into decisions.

    `rate`: samples/s in; `random`: of the simulated detector's errors.
    """

    def __init__(self, rate: int, detection: Detection, interruption: Interruption, random: Random) -> None:
        gate = InterruptionGate(interruption.min_duration_ms / 1000, interruption.min_words)
        self.detector = TurnDetector(_endpointing(detection, random), gate if detection.interrupt_response else None)
        self._vad = Vad(rate, detection.threshold)
        self.frame_bytes = self._vad.frame_bytes
        self._frames = 0

    @property
    def in_turn(self) -> bool:
        return self.detector.in_turn

    def frame(self, pcm: bytes, replying: bool) -> list[Decision]:
        """Return the decisions that follow from the next 20 ms of sound, `pcm`; `replying` as in `TurnDetector`."""
        self._frames += 1
        now, edge = self._frames * FRAME_S, self._vad.frame(pcm)
        if edge is not None:
            tell = self.detector.speech if edge.speech else self.detector.silence
            tell(now - edge.ago_s, replying)
        decisions = []
        while (decision := self.detector.due(now, replying)) is not None:
            decisions.append(decision)
            if decision in ("ended", "ignored"):
                self._vad.turn_over()
        return decisions

    def cut_off(self) -> None:
        """End the turn, though speech goes on."""
        self.detector.reset()
        self._vad.turn_over()


def _endpointing(detection: Detection, random: Random) -> Endpointing:
    if isinstance(detection, ServerVad):
        return SilenceTimeout(detection.silence_duration_ms / 1000)
    return SimulatedSemantic(random, TIMEOUTS_S[detection.eagerness])


class ListeningSession(RealtimeSession):
    """A session whose turns the server may end. `_listen` takes the sound, carries out the decisions and reports them
    to the client."""

    def __init__(self, context: SessionContext, number: int, outbox: Outbox, gateway: Gateway) -> None:
        super().__init__(context, number, outbox, gateway)
        self._reset_input()

    def _silence(self, event: Incoming) -> None:
        """Take the client's facts about the silence that begins now."""
        if event.ends_turn is None:
            raise Refusal("rehearsal.silence has no ends_turn; set true or false.", param="ends_turn")
        self._reply_hint = Hint() if event.reply is None else hint_from(event.reply)
        if self.settings.vad is not None:
            self._microphone(self.settings.vad).detector.ends_turn = event.ends_turn

    def _reset_input(self) -> None:
        self._buffer = Buffer(self.settings.input_rate, self.context.audio_store.kept)
        self._listening: Listening | None = None
        self._vad_pending = bytearray()
        self._vad_samples = 0

    def _microphone(self, detection: Detection) -> Listening:
        """Return the microphone, which is made with the first sound."""
        if self._listening is None:
            random = Random(f"{self.context.seed}/{self.number}")
            self._listening = Listening(self._buffer.rate, detection, self.settings.interruption, random)
        return self._listening

    def _listen(self, detection: Detection, pcm: bytes) -> None:
        """Take more sound of an open microphone."""
        self._vad_pending += pcm
        size = self._microphone(detection).frame_bytes
        complete = len(self._vad_pending) // size * size
        frames = bytes(self._vad_pending[:complete])
        del self._vad_pending[:complete]
        for begin in range(0, complete, size):
            self._detect(detection, frames[begin : begin + size])

    def _detect(self, detection: Detection, frame: bytes) -> None:
        """Take the next 20 ms of an open microphone."""
        buffer, listening = self._buffer, self._microphone(detection)
        buffer.append(frame)
        self._vad_samples += len(frame) // 2
        decisions = listening.frame(frame, self._engaged is not None)
        if listening.in_turn and buffer.seconds + FRAME_S > self.context.longest_s:
            listening.cut_off()
            decisions.append("ended")
        for decision in decisions:
            self._decide(detection, decision)
        if "started" in decisions:  # after a reply that it cuts
            self._speech_starts()
        if not listening.in_turn and "ended" not in decisions:
            buffer.keep_last(detection.prefix_padding_ms / 1000 + OF_FRAMES * FRAME_S)

    def _decide(self, detection: Detection, decision: Decision) -> None:
        buffer = self._buffer
        if decision == "started":
            self._spoken_item = self._new_item()
            begun_ms = round(1000 * (self._vad_samples - buffer.samples) / buffer.rate)
            self.send("input_audio_buffer.speech_started", item_id=self._spoken_item, audio_start_ms=begun_ms)
        elif decision == "interrupt":
            response = self._engaged
            if response is not None:
                self._interrupt(response, None, "turn_detected")
                if response.playback.sent_s:  # told at once: `response.done` waits for the engine's step
                    self.send("output_audio_buffer.cleared", response_id=response.id)
        else:
            ended_ms = round(1000 * self._vad_samples / buffer.rate)
            self.send("input_audio_buffer.speech_stopped", item_id=self._spoken_item, audio_end_ms=ended_ms)
            if decision == "ignored":
                self._speaks_since = None
                self._gateway.speech_ignored(self.number)
                self.send("input_audio_buffer.cleared")
                return
            self._commit_as(self._spoken_item)
            self._waits = detection.create_response and self._replying
            if detection.create_response and not self._waits:
                self._respond(self._next_hint(), self.settings.modality, self.settings.max_output_tokens, None)
