"""Workload `rag`: questions at random times, each with what a search found for it.

A row of the trace is a question: `input_tokens` is the question itself, `history_tokens` the retrieved text that comes
with it, `output_tokens` the answer. So a file of such a trace needs no column that other traces lack.
"""

import numpy as np
from pydantic import Field

from workloads.distributions import arrivals
from workloads.distributions.lengths import LengthModel
from workloads.distributions.speech import network_delays
from workloads.seeds import Streams
from workloads.trace import Trace
from workloads.workload import Workload
from workloads.workload_params import UserParams

CHOSEN = "chosen"
QUESTION = LengthModel(30, 0.5, 4, 512, CHOSEN)
RETRIEVED = LengthModel(6000, 0.9, 256, 60_000, CHOSEN)
ANSWER = LengthModel(150, 0.6, 8, 1024, CHOSEN)
"""Median, log-spread and limits in tokens: what a search finds differs far more than questions do."""


class RagParams(UserParams):
    """Text in, text out."""

    questions: int = Field(200, ge=1, le=1_000_000, description="number of questions")
    rate: float = Field(5.0, ge=1e-6, le=1e6, description="questions per second, Poisson arrivals")
    retrieved_tokens: int = Field(6000, ge=256, le=60_000, description="median of the text that is found")
    retrieved_sigma: float = Field(0.9, ge=0, le=3, description="log-spread of it")
    answer_tokens: int = Field(150, ge=8, le=1024, description="median answer")


def rag(params: RagParams, seed: int) -> Trace:
    """Each purpose draws from a stream of its own, so that another rate finds the same texts."""
    streams, n = Streams(seed), params.questions
    retrieved = RETRIEVED.adjusted(params.retrieved_tokens, params.retrieved_sigma, None)
    answers = ANSWER.adjusted(params.answer_tokens, None, None)
    columns = {
        "session": np.arange(n),
        "turn": 0,
        "arrival_s": arrivals.poisson(streams("arrivals"), params.rate, n),
        "modality": "text",
        "input_tokens": QUESTION.sample(streams("questions"), n),
        "history_tokens": retrieved.sample(streams("retrieved"), n),
        "output_tokens": answers.sample(streams("answers"), n),
        "network_s": network_delays(streams("jitter"), params.network_ms, n),
    }
    return Trace.from_columns(
        columns,
        generator="rag",
        params=params.model_dump(mode="json"),
        seed=seed,
        streams=streams.names,
        notes=[f"retrieved: {retrieved}", f"answers: {answers}"],
    )


WORKLOAD = Workload("rag", "questions with retrieved text, Poisson arrivals", RagParams, rag, serves="rag")
