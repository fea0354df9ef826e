"""The output of `rehearse profile --from RUNS` for a server that speaks, in the form of that for text (`factors`)."""

from collections.abc import Iterator, Sequence

import numpy as np

from harness.measured_runs.voice import CHUNKS, METRICS, VoiceFit
from reports.tables.plain_tables import Table

HEADINGS = (
    "load",
    "replies",
    "TTFP P50: ms, before, after",
    "TTFP P90: ms, before, after",
    "RTF P50, before, after",
    "continuity: %, points before, after",
)
UNITS = (1e3, 1e3, 1.0, 100.0)
CONSTANTS = {
    "talker.host_s": "host, a step of the talker",
    "talker.host_s_per_request": "host, each request of a step of the talker",
    "preprocess_s": "outside the GPUs, before a reply",
    "preprocess_text_s": "outside the GPUs, before a reply",
    "initial_codec_chunk_frames": "frames of a first chunk",
    "codec_chunk_frames": "frames of a later chunk",
}


def tables(fit: VoiceFit) -> list[Table]:
    constants = [
        (CONSTANTS[name], _value(name, each.value), _value(name, each.default), each.fitted_to)
        for name, each in fit.constants.items()
    ]
    held_out = "held-out loads, each by a fit to the others: measured values, and errors before and after the fit"
    return [
        _errors(held_out, fit, fit.held_out),
        _errors("the same loads, all of them fitted", fit, fit.fitted),
        Table("constants", ("of what", "fitted", "default", "fitted to"), constants),
    ]


def sentences(fit: VoiceFit) -> Iterator[str]:
    yield (
        "TTFP holds the thinker, the hops and the client's path together, and these runs cannot tell them apart: one "
        f"constant has all that {fit.base} lacks of it, the same at all loads and prompts. Nothing was fitted to TTFP "
        "P90 and continuity."
    )
    yield "Replays have the lengths of the measured replies, which a forecast does not know."
    for name in CHUNKS:
        if name not in fit.constants:
            yield f"{CONSTANTS[name]}: as {fit.base} has it, since packets show none."
    for name, each in fit.constants.items():
        if each.value == 0 and each.default > 0:
            yield f"{CONSTANTS[name]}: the fit ends at 0, as the server is faster than {fit.base}."
    for load in fit.loads:
        if load.failed:
            yield f"{load.name}: {load.failed} turns failed; in a replay none does."
    if len({load.users for load in fit.loads}) < len(fit.loads):
        yield "Several loads have the same users, also left-out ones; measure without --same-users."


def _errors(title: str, fit: VoiceFit, after: Sequence[np.ndarray]) -> Table:
    errors = 100 * np.stack([fit.errors(fit.before), fit.errors(after)], axis=-1)
    signs = ["" if metric == "continuity" else " %" for metric in METRICS]
    rows = []
    for load, of_load in zip(fit.loads, errors, strict=True):
        cells = zip(load.measured, UNITS, of_load, signs, strict=True)
        shown = (f"{unit * value:.4g}  {_pair(pair, '+.1f', sign)}" for value, unit, pair, sign in cells)
        rows.append((load.name, f"{load.replies}", *shown))
    means = zip(np.nanmean(np.abs(errors), axis=0), signs, strict=True)
    return Table(title, HEADINGS, [*rows, ("mean absolute", "", *(_pair(pair, ".1f", sign) for pair, sign in means))])


def _pair(before_and_after: np.ndarray, form: str, sign: str) -> str:
    return "  ".join(f"{each:{form}}{sign}" for each in before_and_after)


def _value(name: str, value: float) -> str:
    return f"{value:g}" if name in CHUNKS else f"{1e3 * value:.4g} ms"
