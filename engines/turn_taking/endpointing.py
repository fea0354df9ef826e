"""The silence after which a turn is over."""

from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

TIMEOUTS_S = {"low": 8.0, "medium": 4.0, "high": 2.0, "auto": 4.0}
"""[config: OpenAI Realtime API, semantic_vad] by `eagerness`: silence after which a turn is over in any case."""


class Accuracy(NamedTuple):
    """The accuracy of a detector that is asked once in each silence. `true_positive`: share of finished turns that it
    calls finished; `false_positive`: share of hesitations that it calls finished."""

    true_positive: float
    false_positive: float


ACCURACY = {
    "smart_turn_v3": Accuracy(1 - 2 * 0.0372, 2 * 0.0468),
    "smart_turn_v3_telephone": Accuracy(1 - (2 * (1 - 0.8892) - 0.1805), 0.1805),
}
"""[published] Smart Turn v3.0, 31,473 samples in 23 languages: 4.68 % false positives and 3.72 % false negatives of all
(pipecat-ai/smart-turn-v3, benchmarks/smart-turn-v3.0.md). The same family, v3.2, over 8 kHz mu-law: accuracy 88.92 %,
and 18.05 % of unfinished turns called finished (dograh-hq discussion 971, 12,612 clips). Both as rates on the
assumption that half of the samples are finished turns."""
INFERENCE_S = 0.06
"""[published] Smart Turn v3 on one small cloud CPU (daily.co, announcing Smart Turn v3); on faster ones 0.012 s."""
ASK_S = 0.2
"""[config: Pipecat, stop_secs with Smart Turn] silence before such a detector is asked."""


class Endpointing(Protocol):
    """A rule for the end of turns. `ask_s`: silence after which `over_s` is asked, once; it returns the whole silence
    that ends the turn."""

    ask_s: float

    def over_s(self, ends_turn: bool) -> float: ...


@dataclass
class SilenceTimeout:
    """OpenAI's `server_vad`: a turn is over after `ask_s` seconds (`silence_duration_ms`) without speech."""

    ask_s: float = 0.5

    def over_s(self, ends_turn: bool) -> float:
        del ends_turn
        return self.ask_s


@dataclass
class SimulatedSemantic:
    """A detector that reads the words, SIMULATED: it gets the truth (`ends_turn`) and errs at published rates.

    In each silence it is asked once, after `ask_s`, and takes `inference_s` to answer. If it finds the turn unfinished,
    the turn is over after `timeout_s`.
    """

    random: Random
    timeout_s: float = TIMEOUTS_S["auto"]
    accuracy: Accuracy = ACCURACY["smart_turn_v3"]
    inference_s: float = INFERENCE_S
    ask_s: float = ASK_S

    def over_s(self, ends_turn: bool) -> float:
        rate = self.accuracy.true_positive if ends_turn else self.accuracy.false_positive
        answered_s = self.ask_s + self.inference_s
        return answered_s if self.random.random() < rate else max(answered_s, self.timeout_s)


WORDS_PER_S = 150 / 60
"""[published] mean rate of conversation in American English, 150 words a minute (National Center for Voice and
Speech)."""


@dataclass(frozen=True)
class InterruptionGate:
    """Speech that interrupts a reply. Both conditions must be met; with neither every sound of speech interrupts.

    `min_words` are SIMULATED: nothing recognises them, they come at `WORDS_PER_S` and without a recogniser's delay.
    """

    min_duration_s: float = 0.0
    min_words: int = 0

    @property
    def after_s(self) -> float:
        """Seconds of speech, without its silences, that take the floor."""
        return max(self.min_duration_s, self.min_words / WORDS_PER_S)
