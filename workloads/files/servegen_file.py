"""ServeGen's clients: Alibaba's measurements of users of its service, one pair of files a client.

    chunk-N-trace.csv     no header: start of the window in s, rate per s, CV of the gaps, Gamma | Weibull,
    shape,
                          scale; an idle window has rate 0 and no law
    chunk-N-dataset.json  {start in s: {"input_tokens": "{39: 0.00036, ...}", "output_tokens": ...}}, the
                          probabilities as a Python dictionary in quotes; empty where there were no requests.
                          Of a multimodal client: "text_tokens" in place of "input_tokens", and for image, audio and
                          video "..._count" in a request and "..._tokens" of each

Shape and scale were fitted to the gaps within a window, and where bursts are short their mean is far from 1/rate. So
rate and CV are taken as they are, and of the fit only which law it is.
"""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workloads.errors import UserError
from workloads.files.csv_file import CsvFile
from workloads.files.json_file import read_document
from workloads.files.row_file import MAX_TOKENS

COLUMNS = ("start", "rate", "cv", "law", "shape", "scale")
CV_RANGE = (0.05, 50.0)  # of the gaps that can be drawn; a few windows with one burst have more
MAX_ATTACHED = 1000  # of one kind in a request; more is an error of the file
MEDIA = ("image", "audio", "video")
VISUAL = ("image", "video")
_TRACE = re.compile(r"(chunk-\d+)-trace\.csv")


@dataclass(frozen=True)
class LengthLaw:
    """Probabilities of lengths in tokens, arrays of shape (lengths,)."""

    tokens: np.ndarray
    share: np.ndarray

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """n lengths in tokens, int64, shape (n,)."""
        return rng.choice(self.tokens, n, p=self.share)


@dataclass(frozen=True)
class Attached:
    """Images, sounds or videos of a request: how many, and the tokens of each."""

    count: LengthLaw
    tokens: LengthLaw

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Tokens of all that n requests have of them, int64, shape (n,)."""
        counts = self.count.sample(rng, n)
        ends = np.cumsum(counts)
        total = np.concatenate([[0], np.cumsum(self.tokens.sample(rng, int(counts.sum())))])
        return total[ends] - total[ends - counts]


@dataclass(frozen=True)
class Laws:
    """Lengths of a client's requests: prompt text, replies, and attachments by the kind of medium."""

    text: LengthLaw
    output: LengthLaw
    attached: dict[str, Attached]

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Return tokens of input, output and visual input, int64, shape (3, n)."""
        text, output = self.text.sample(rng, n), self.output.sample(rng, n)
        attached = {medium: lengths.sample(rng, n) for medium, lengths in self.attached.items()}
        none = np.zeros(n, np.int64)
        visual = sum((attached.get(medium, none) for medium in VISUAL), none)
        return np.stack([np.maximum(sum(attached.values(), text), 1), np.maximum(output, 1), visual])


@dataclass(frozen=True)
class Client:
    """One client: its windows in order of time, arrays of shape (windows,), and its lengths by time.

    lengths: start in s -> laws of its requests, or None where it had none.
    """

    name: str
    start_s: np.ndarray
    rate: np.ndarray
    cv: np.ndarray
    weibull: np.ndarray
    lengths: dict[float, Laws | None]

    @property
    def is_multimodal(self) -> bool:
        return any(laws and laws.attached for laws in self.lengths.values())


def read_servegen(folder: Path, notes: list[str], skip_bad: bool = False) -> list[Client]:
    """All clients of a folder and those below it; UserError names file, row and column of bad input."""
    if not os.path.isdir(folder):
        raise UserError(f"{folder} is not a folder; give the one with ServeGen's chunk-*-trace.csv files.")
    paths = sorted(path for path in folder.rglob("chunk-*-trace.csv") if _TRACE.fullmatch(path.name))
    if not paths:
        raise UserError(f"{folder} has no chunk-*-trace.csv; give a folder of ServeGen's clients.")
    clients = [_client(path, folder, notes, skip_bad) for path in paths]
    without = sum(not any(client.lengths.values()) for client in clients)
    notes.append(f"{len(clients)} clients, {without} of them without lengths of their own")
    multimodal = sum(client.is_multimodal for client in clients)
    if multimodal:
        notes.append(f"{multimodal} clients attach images, sounds or videos, whose tokens are part of the input")
    if without == len(clients):
        raise UserError(f"{folder}: no client has a chunk-N-dataset.json with lengths; add at least one.")
    return clients


def _client(path: Path, folder: Path, notes: list[str], skip_bad: bool) -> Client:
    file = CsvFile(path, None, skip_bad, names=COLUMNS)
    start_s, rate, cv = (file.times(name) for name in COLUMNS[:3])
    law = file.text("law").astype(str)
    file.refuse((rate > 0) & ~np.isin(law, ["Gamma", "Weibull"]), "law", "is neither Gamma nor Weibull")
    file.refuse((rate > 0) & (cv <= 0), "cv", "is 0 in a window with requests")
    good = file.good
    file.refuse(np.concatenate([[False], np.diff(start_s) <= 0]) & good, "start", "is not after the window before")
    name = str(path.relative_to(folder).parent / path.name.removesuffix("-trace.csv"))
    notes += [f"{name}: {note}" for note in file.notes()]
    good = file.good
    if not good.any():
        raise file.nothing_left()
    extreme = np.sum((rate > 0) & ((cv > CV_RANGE[1]) | (cv < CV_RANGE[0])) & good)
    if extreme:
        notes.append(f"{name}: {extreme} windows with a CV outside {CV_RANGE[0]:g} to {CV_RANGE[1]:g}, set to it")
    table = path.with_name(path.name.replace("-trace.csv", "-dataset.json"))
    lengths = _read_lengths(table) if table.exists() else {}
    return Client(name, start_s[good], rate[good], np.clip(cv, *CV_RANGE)[good], (law == "Weibull")[good], lengths)


def _read_lengths(path: Path) -> dict[float, Laws | None]:
    document = read_document(path)
    if not isinstance(document, dict):
        raise UserError(f"{path} is not an object of times and lengths; give ServeGen's file.")
    lengths: dict[float, Laws | None] = {}
    for key, value in document.items():
        try:
            lengths[float(key)] = _laws(value)
        except ValueError as error:
            raise UserError(f"{path}, {key!r}: {error}; correct or remove this entry.") from None
    return dict(sorted(lengths.items()))


def _laws(entry: Any) -> Laws | None:
    """The laws of a client for a while; None when it had no requests then. ValueError names the field that is none."""

    def law(name: str, most: int) -> LengthLaw | None:
        try:
            return _law(entry.get(name), most)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{name}: {error}") from None

    if not isinstance(entry, dict):
        raise ValueError("is not an object of lengths")
    text = law("text_tokens" if "text_tokens" in entry else "input_tokens", MAX_TOKENS)
    output = law("output_tokens", MAX_TOKENS)
    attached: dict[str, Attached] = {}
    for medium in MEDIA:
        if f"{medium}_tokens" in entry:
            count, tokens = law(f"{medium}_count", MAX_ATTACHED), law(f"{medium}_tokens", MAX_TOKENS)
            if count and tokens:
                attached[medium] = Attached(count, tokens)
    return Laws(text, output, attached) if text and output else None


def _law(text: Any, most: int) -> LengthLaw | None:
    """The law in a quoted dictionary of numbers; None when it is empty. ValueError when it is none."""
    if not isinstance(text, str):
        raise ValueError("no quoted dictionary of numbers and their shares")
    table = json.loads(re.sub(r"(-?\d+(?:\.\d+)?)\s*:", r'"\1":', text))
    if not isinstance(table, dict):
        raise ValueError(f"{text[:40]!r} is not a dictionary of numbers and their shares")
    values = np.array([float(key) for key in table], np.float64)
    share = np.array([float(value) for value in table.values()], np.float64)
    if not len(values) or share.sum() == 0:
        return None
    if not (np.isfinite(share).all() and (share >= 0).all() and np.isfinite(share.sum())):
        raise ValueError("a share is negative or no number")
    if not ((values >= 0) & (values <= most)).all():
        raise ValueError(f"a number is not between 0 and {most}")
    return LengthLaw(np.rint(values).astype(np.int64), share / share.sum())
