"""An open microphone: what each 20 ms of it means for the turns of its session."""

from random import Random

from engines.endpoint.turn_detection import Detection, Interruption, ServerVad
from engines.endpoint.vad import FRAME_S, Vad
from engines.turn_taking.detector import Decision, TurnDetector
from engines.turn_taking.endpointing import TIMEOUTS_S, Endpointing, SilenceTimeout, SimulatedSemantic
from engines.turn_taking.interruption import InterruptionGate


class Listening:
    """`rate`: samples/s in; `random`: what the simulated detector errs by."""

    def __init__(self, rate: int, detection: Detection, interruption: Interruption, random: Random) -> None:
        gate = InterruptionGate(interruption.min_duration_ms / 1000, interruption.min_words)
        self.detector = TurnDetector(
            _endpointing(detection, random), gate if detection.interrupt_response else None
        )
        self._vad = Vad(rate, detection.threshold)
        self.frame_bytes = self._vad.frame_bytes
        self._frames = 0

    @property
    def in_turn(self) -> bool:
        return self.detector.in_turn

    def frame(self, pcm: bytes, replying: bool) -> list[Decision]:
        """What follows from the next 20 ms; `replying` as in `TurnDetector`."""
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
        """The turn is over, though speech goes on."""
        self.detector.reset()
        self._vad.turn_over()


def _endpointing(detection: Detection, random: Random) -> Endpointing:
    if isinstance(detection, ServerVad):
        return SilenceTimeout(detection.silence_duration_ms / 1000)
    return SimulatedSemantic(random, TIMEOUTS_S[detection.eagerness])
