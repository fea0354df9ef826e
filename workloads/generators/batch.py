"""Batch jobs in text: workloads `offline` (ConServe) and `novel` (OmniInfer).

All requests are there from the start, so that the queue is never empty and the client's bound c sets the load; with a
rate they come as a Poisson process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from workloads.distributions import arrivals, speech
from workloads.distributions.lengths import LengthModel
from workloads.files.documents_file import TOKENS_PER_CHAR, read_longbench, read_vcsum
from workloads.seeds import Streams
from workloads.trace import Trace
from workloads.workload_params import WorkloadParams

CONTEXT = 32_768  # ConServe's VCSUM inputs have this as their 99th percentile: longer ones are cut
_TABLE_1 = "ConServe, Table 1"
# Documents and answers of ConServe's offline sets: (input, output).
SHAPES = {
    "dureader": (
        LengthModel.through(21_776, 29_306, CONTEXT, f"{_TABLE_1}, DuReader"),
        LengthModel.through(166, 754, 4096, f"{_TABLE_1}, DuReader"),
    ),
    "multinews": (
        LengthModel.through(6_916, 12_084, CONTEXT, f"{_TABLE_1}, MultiNews"),
        LengthModel.through(394, 788, 4096, f"{_TABLE_1}, MultiNews"),
    ),
    "vcsum": (
        LengthModel.through(18_803, 32_768, CONTEXT, f"{_TABLE_1}, VCSUM"),
        LengthModel.through(337, 510, 4096, f"{_TABLE_1}, VCSUM"),
    ),
}
# OmniInfer gives mean 3,500 in and 1,000 out, in + out below 16K. The spreads: its throughput columns imply 1,180
# out on average, and its P99 of the end-to-end time 3,050.
NOVEL_CAP = 16_384
NOVEL_INPUT_SIGMA, NOVEL_OUTPUT_SIGMA = 0.6, 0.47


class BatchParams(WorkloadParams):
    """Text in, text out."""

    p: Literal[0] = Field(0, description="nothing is spoken, so nobody interrupts")
    requests: int = Field(200, ge=1, le=10_000_000, description="number of requests")
    rate: float | None = Field(
        None, ge=1e-6, le=1e6, description="arrivals per second, Poisson; default: all at the start"
    )


class OfflineParams(BatchParams):
    """Long documents with questions or summaries."""

    shape: Literal["mixed", "dureader", "multinews", "vcsum"] = Field(
        "mixed", description="which of ConServe's sets the lengths are of; mixed: a third of each"
    )
    path: Path | None = Field(
        None,
        description="file to take the lengths of: LongBench's rows, of vcsum also VCSum's own segments (short_*.txt)",
    )
    tokens_per_char: float = Field(
        TOKENS_PER_CHAR, gt=0, le=4, description="tokens of a character of the file's texts, if Chinese"
    )
    skip_bad: bool = Field(False, description="go on past bad rows of the file, and note how many there were")

    @model_validator(mode="after")
    def _the_file_is_of_one_set(self) -> OfflineParams:
        if self.path is not None and self.shape == "mixed":
            raise ValueError(f"path={self.path} holds one set; set shape to which it is or leave path out")
        return self


class NovelParams(BatchParams):
    """Long text to be continued."""

    input_mean: float = Field(3500.0, ge=1, le=1e6, description="mean input before the cap, tokens")
    output_mean: float = Field(1000.0, ge=1, le=1e6, description="mean output before the cap, tokens")
    cap: int = Field(NOVEL_CAP, ge=2, le=10_000_000, description="most tokens of input and output together")

    @model_validator(mode="after")
    def _room_under_the_cap(self) -> NovelParams:
        if self.input_mean + self.output_mean > self.cap:
            raise ValueError(
                f"input_mean={self.input_mean:g} and output_mean={self.output_mean:g} pass cap={self.cap}; raise it"
            )
        return self


def offline(params: OfflineParams, seed: int) -> Trace:
    """Documents with the lengths of ConServe's offline sets, or of a file; UserError as its reader."""
    streams, n = Streams(seed), params.requests
    if params.path is not None:
        notes: list[str] = []
        segments = params.shape == "vcsum" and params.path.suffix == ".txt"
        read = read_vcsum if segments else read_longbench
        documents, answers = read(params.path, notes, params.skip_bad)
        rows = streams("lengths").choice(len(documents), n)
        notes.append(f"{params.tokens_per_char:.3g} tokens a character; inputs cut to {CONTEXT}")
        inputs, outputs = (_tokens(texts[rows], params.tokens_per_char) for texts in (documents, answers))
        return _batch("offline", params, streams, np.minimum(inputs, CONTEXT), outputs, notes)
    names = list(SHAPES) if params.shape == "mixed" else [params.shape]
    which = streams("sets").integers(len(names), size=n)
    draws = [[law.sample(streams(f"{name} {i}"), n) for i, law in enumerate(SHAPES[name])] for name in names]
    inputs, outputs = (np.choose(which, [draw[i] for draw in draws]) for i in range(2))
    notes = [f"{name}: {law}" for name in names for law in SHAPES[name]]
    return _batch("offline", params, streams, inputs, outputs, notes)


def novel(params: NovelParams, seed: int) -> Trace:
    """Long-tailed requests as OmniInfer's; one that would pass the cap is drawn again, whole."""
    streams, n = Streams(seed), params.requests
    laws = [
        LengthModel(mean / np.exp(sigma**2 / 2), sigma, 1, params.cap - 1, "OmniInfer, benchmark")
        for mean, sigma in ((params.input_mean, NOVEL_INPUT_SIGMA), (params.output_mean, NOVEL_OUTPUT_SIGMA))
    ]
    drawn = [law.sample(streams(name), n) for law, name in zip(laws, ("inputs", "outputs"), strict=True)]
    again = streams("too long")
    redrawn = 0
    while (long := np.flatnonzero(drawn[0] + drawn[1] > params.cap)).size:
        redrawn += len(long)
        for lengths, law in zip(drawn, laws, strict=True):
            lengths[long] = law.sample(again, len(long))
    notes = [f"inputs: {laws[0]}", f"outputs: {laws[1]}", f"{redrawn} draws above {params.cap} together"]
    return _batch("novel", params, streams, drawn[0], drawn[1], notes)


def _tokens(characters: np.ndarray, per_char: float) -> np.ndarray:
    return np.maximum(np.ceil(characters * per_char), 1).astype(np.int64)


def _batch(
    generator: str,
    params: BatchParams,
    streams: Streams,
    input_tokens: np.ndarray,
    output_tokens: np.ndarray,
    notes: list[str],
) -> Trace:
    n = len(input_tokens)
    columns = {
        "session": np.arange(n),
        "turn": 0,
        "arrival_s": 0.0 if params.rate is None else arrivals.poisson(streams("arrivals"), params.rate, n),
        "modality": "text",
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "network_s": speech.network_delays(streams("jitter"), params.network_ms, n),
    }
    return Trace.made(generator, params, streams, columns, notes)
