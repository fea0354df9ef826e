"""How a Pipecat bot hears voices: a row of `docs/speech.md` for each.

    PYTHON -m tools.voice.compare VOICE ...

PYTHON is that of `tools.voice.speak`. A VOICE is `stock` (workloads.audio.voice, the default of callers), `synth`
(workloads.audio.synth), `espeak-ng:NAME`, `flite:NAME` or `festival:NAME` (the program must be on the PATH),
`hibari`, `piper:FILE.onnx` (with the Python package piper-tts), or a folder of recordings.

A pause is asked for like this: the sound is cut there and silence follows, as Silero needs it. Where synthesizers pause
the text says: after "um", or after a clause. In recordings it is the longest silence inside of 0.2 s or more.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import soundfile
import soxr

from tools.voice.ear import RATE, Ear
from tools.voice.speak import HESITATES, LEVEL_DB, PEAK, SENTENCES, STEP_S, levels
from workloads.audio.library import Library
from workloads.audio.synth import SyntheticClip
from workloads.audio.voice import sentences

CLIPS = 60
TEXTS = 66  # sentences without a pause, of each synthesizer
QUIET_DB, SHORTEST_S, EDGE_S = -24, 0.06, 0.15
RECORDED_PAUSE_S = 0.2


@dataclass
class Clip:
    """int16 at 16 kHz. `pauses`: kind -> places in s. `ends`: whether its end is judged as well."""

    pcm: np.ndarray
    pauses: dict[str, list[float]] = field(default_factory=dict)
    ends: bool = True


def silences(pcm: np.ndarray) -> list[tuple[float, float]]:
    """Begin and end in s of the silences inside."""
    level = levels(pcm / 32768, RATE)
    loud = np.r_[True, level >= np.percentile(level, 95) * 10 ** (QUIET_DB / 20), True]
    edges = np.flatnonzero(np.diff(loud.astype(int)))
    found = [(begin * STEP_S, end * STEP_S) for begin, end in zip(edges[::2], edges[1::2], strict=True)]
    last_s = len(level) * STEP_S - EDGE_S
    return [(b, e) for b, e in found if b > EDGE_S and e < last_s and e - b >= SHORTEST_S - 1e-9]


def longest(pcm: np.ndarray) -> list[float]:
    long = [gap for gap in silences(pcm) if gap[1] - gap[0] >= RECORDED_PAUSE_S]
    return [max(long, key=lambda gap: gap[1] - gap[0])[0]] if long else []


def prepared(sound: np.ndarray, rate: int) -> np.ndarray:
    """int16 at 16 kHz, from the first speech to the last, at one level for all."""
    sound = sound if sound.ndim == 1 else sound.mean(axis=1)
    level = levels(sound, rate)
    spoken = np.flatnonzero(level > np.percentile(level, 95) * 10 ** (-35 / 20))
    size = round(STEP_S * rate)
    sound = sound[max(0, spoken[0] - 2) * size : (spoken[-1] + 3) * size]
    strong = level[level > level.max() / 10]
    sound = np.clip(sound * 10 ** (LEVEL_DB / 20) / np.sqrt(np.mean(strong**2)), -PEAK, PEAK)
    return np.rint(np.clip(soxr.resample(sound, rate, RATE), -1, 1) * 32767).astype(np.int16)


def said(voice: str) -> Callable[[str], tuple[np.ndarray, int]]:
    """Return what speaks a text: samples and their rate."""
    program, _, name = voice.partition(":")
    if program == "hibari":
        from hibari import SAMPLE_RATE, Hibari  # type: ignore[import-not-found]

        speak = Hibari()
        return lambda text: (np.ravel(speak(text)).astype(float), SAMPLE_RATE)
    if program == "piper":
        from piper import PiperVoice  # type: ignore[import-not-found]

        model = PiperVoice.load(name)
        return lambda text: (
            np.concatenate([part.audio_float_array for part in model.synthesize(text)]).astype(float),
            model.config.sample_rate,
        )
    commands: dict[str, Callable[[str, str], list[str]]] = {
        "espeak-ng": lambda text, file: ["espeak-ng", "-v", name, "-w", file, text],
        "flite": lambda text, file: ["flite", "-voice", name, "-t", text, "-o", file],
        "festival": lambda text, file: [
            "festival",
            "-b",
            f'(begin (voice_{name}) (utt.save.wave (utt.synth (Utterance Text "{text}")) "{file}"))',
        ],
    }

    def run(text: str) -> tuple[np.ndarray, int]:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(commands[program](text, f"{folder}/said.wav"), check=True, capture_output=True)
            return soundfile.read(f"{folder}/said.wav")

    return run


def clips(voice: str) -> Iterator[Clip]:
    if voice == "stock":
        for sentence in sentences():
            yield Clip(sentence.pcm(RATE), {"um" if "um," in sentence.text else "word": list(sentence.places_s)})
    elif voice == "synth":
        for index in range(CLIPS):
            pcm = SyntheticClip(index).pcm(RATE)
            yield Clip(pcm, {"pause": longest(pcm)})
    elif Path(voice).is_dir():
        for recording in Library.scan(voice, skip_bad=True).clips:
            pcm = prepared(recording.pcm(RATE) / 32768, RATE)
            yield Clip(pcm, {"pause": longest(pcm)})
    else:
        speak, lines = said(voice), SENTENCES.read_text().splitlines()
        plain = [line for line in lines if "|" not in line]
        for line in plain[:TEXTS] + [line for line in lines if "|" in line]:
            pcm = prepared(*speak(line.replace("| ", "")))
            kind = "um" if HESITATES in line else "clause"
            marked_s = line.find("|") / len(line) * len(pcm) / RATE
            found = sorted(silences(pcm), key=lambda gap: abs(gap[0] - marked_s)) if "|" in line else []
            yield Clip(pcm, {kind: [gap[0] for gap in found[:1]]}, kind == "um" or "|" not in line)


def main(voices: list[str]) -> None:
    ear = Ear()
    print("voice | clips | heard as speech | turn over at the end | turn over at a pause: kind, places")
    for voice in voices:
        heard, over, pauses = [], [], dict[str, list[bool]]()
        for clip in clips(voice):
            if clip.ends:
                result = ear.hear(clip.pcm)
                heard.append(result.speech)
                over.append(result.over)
            for kind, places_s in clip.pauses.items():
                for at_s in places_s:
                    pauses.setdefault(kind, []).append(ear.hear(clip.pcm[: round(at_s * RATE)]).over)
        at_pauses = "; ".join(f"{kind} {sum(those)} of {len(those)}" for kind, those in pauses.items())
        print(f"{voice} | {len(heard)} | {sum(heard)} | {sum(over)} | {at_pauses}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
