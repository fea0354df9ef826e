"""Many clients of one service, each with its own rate, bursts and lengths: workload `servegen`.

Some clients send most of the requests, and some come in bursts; their sum is neither Poisson nor as bursty as they
are. From ServeGen's files of measured clients, or from published statistics of its pools.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from workloads.distributions import arrivals
from workloads.distributions.lengths import LengthModel, QuantileTable, ndtri
from workloads.errors import UserError
from workloads.files.servegen_file import CV_RANGE, Client, read_servegen
from workloads.generators.exchanges import PROMPT_LENGTHS, REPLY_LENGTHS, Content, ExchangeParams, exchange_columns
from workloads.seeds import Streams
from workloads.trace import Trace, check_turns

WINDOW_S = 600.0
MOST_WINDOWS = 300_000
"""Windows of all clients: [chosen] 20 s on one core [measured]."""
WEIBULL_SHARE = 0.25  # of the client windows of all pools
# One busy client (m-small, chunk 21): log-spread of its rate 0.48, of its change from window to window 0.46,
# so that successive windows correlate by 1 - 0.46^2 / (2 x 0.48^2).
RATE_SPREAD, RATE_MEMORY = 0.48, 0.53


@dataclass(frozen=True)
class Pool:
    """Published statistics of a pool: clients, requests per s of all, share of the busiest tenth of the
    clients, CV of client windows at P10, P50, P90 and P99, and (P50, P99) of input and output tokens."""

    clients: int
    rate: float
    busiest_tenth: float
    cv: tuple[float, float, float, float]
    input_tokens: tuple[float, float]
    output_tokens: tuple[float, float]

    def shares(self, rng: np.random.Generator) -> np.ndarray:
        """Return the share of each client in the requests, shape (clients,), lognormal with this share of the top
        tenth.

        Of a lognormal of log-spread s the top tenth holds Phi(s - z), where Phi(z) = 0.9.
        """
        spread = float(ndtri(self.busiest_tenth) + ndtri(0.9))
        raw = np.exp(spread * rng.standard_normal(self.clients))
        return raw / raw.sum()


# ServeGen (Alibaba, Apache-2.0): rates and CVs of all clients; the lengths of m-large lack 55 large clients.
POOLS = {
    "m-large": Pool(162, 196.0, 0.74, (0.70, 1.17, 4.3, 13.0), (601, 5452), (53, 872)),
    "mm-image": Pool(35, 9.5, 0.39, (0.79, 1.37, 5.0, 13.0), (106, 3064), (100, 587)),
    "deepseek-r1": Pool(73, 16.0, 0.60, (0.80, 1.03, 4.0, 9.7), (208, 23_423), (792, 12_607)),
}


class ServeGenParams(ExchangeParams):
    """Clients of a service for a while. A length of None takes the client's or the pool's."""

    modality: Literal["text"] = Field("text", description="clients are programs, which type")
    reply: Literal["speech", "text"] = Field("text", description="whether replies are spoken or text only")
    path: Path | None = Field(None, description="folder of ServeGen's chunk-* files; default: statistics of `pool`")
    pool: Literal["m-large", "mm-image", "deepseek-r1"] = Field(
        "m-large", description="published pool, where no path is given"
    )
    start_s: float = Field(0.0, ge=0, le=1e9, description="begin so long after the start of the files, s")
    duration_s: float = Field(600.0, gt=0, le=1e7, description="length of the trace, s")
    rate: float | None = Field(
        1.0, gt=0, le=1e6, description="mean requests per second of all clients; null: as measured"
    )
    skip_bad: bool = Field(False, description="go on past bad rows, and note how many there were")

    @model_validator(mode="after")
    def _files_or_law(self) -> ServeGenParams:
        self.replaces("path", *PROMPT_LENGTHS, *REPLY_LENGTHS)
        return self

    def _prompt_law(self) -> LengthModel:
        return _law(POOLS[self.pool].input_tokens, self.pool)

    def _reply_law(self) -> LengthModel:
        return _law(POOLS[self.pool].output_tokens, self.pool)


def _law(quantiles: tuple[float, float], pool: str) -> LengthModel:
    median, p99 = quantiles
    sigma = round(float(np.log(p99 / median) / ndtri(0.99)), 3)
    return LengthModel(median, sigma, 1, 131_072, f"ServeGen {pool}: P50 {median:g}, P99 {p99:g}")


def servegen(params: ServeGenParams, seed: int) -> Trace:
    """Single requests of a pool of clients; UserError names file, row and column of bad input."""
    streams, notes = Streams(seed), list[str]()
    if params.path is None:
        _check_windows(POOLS[params.pool].clients, params.duration_s)
        clients = _invented(POOLS[params.pool], params.duration_s, streams)
        notes.append(f"{len(clients)} clients with the statistics of ServeGen's {params.pool}")
    else:
        clients = [_from(client, params) for client in read_servegen(params.path, notes, params.skip_bad)]
    _check_windows(len(clients), params.duration_s)
    scale = _scale(clients, params)
    rng = streams("arrivals")
    per_client = [_arrivals(rng, client, scale, params.duration_s) for client in clients]
    times = np.concatenate(per_client)
    if not len(times):
        raise UserError("no client sends a request in this time; choose another start_s or a longer duration_s.")
    order = np.argsort(times, kind="stable")
    visual_tokens = None
    if params.path is None:
        content = params.drawn(streams, len(times))
    else:
        content, visual = _measured(clients, per_client, order, params, streams)
        if any(client.is_multimodal for client in clients):
            visual_tokens = visual
    columns = exchange_columns(params, streams, np.arange(len(times)), content)
    return Trace.made(
        "servegen",
        params,
        streams,
        columns | {"turn": 0, "arrival_s": times[order], "visual_tokens": visual_tokens},
        [*notes, *content.notes],
    )


def _invented(pool: Pool, duration_s: float, streams: Streams) -> list[Client]:
    """Return clients whose rates differ as in the pool and change from window to window."""
    n = int(np.ceil(duration_s / WINDOW_S))
    start_s = np.arange(n) * WINDOW_S
    cv_law = QuantileTable((0.1, 0.5, 0.9, 0.99), pool.cv, "ServeGen")
    change, shape, law = streams("rates"), streams("bursts"), streams("laws")
    clients = []
    for index, share in enumerate(pool.shares(streams("clients")).tolist()):
        steps = change.standard_normal(n) * np.where(np.arange(n) > 0, np.sqrt(1 - RATE_MEMORY**2), 1.0)
        level = np.zeros(n)
        for i in range(n):
            level[i] = (RATE_MEMORY * level[i - 1] if i else 0.0) + steps[i]
        rate = pool.rate * share * np.exp(RATE_SPREAD * level - RATE_SPREAD**2 / 2)
        cv = np.clip(cv_law.quantile(shape.random(n)), *CV_RANGE)
        clients.append(Client(str(index), start_s, rate, cv, law.random(n) < WEIBULL_SHARE, {}))
    return clients


def _from(client: Client, params: ServeGenParams) -> Client:
    """The client's windows from start_s on, as many as the trace is long; windows before are left out."""
    n = int(np.ceil(params.duration_s / WINDOW_S))
    start_s = params.start_s + np.arange(n) * WINDOW_S
    at = np.searchsorted(client.start_s, start_s, side="right") - 1
    covered = (at >= 0) & (start_s < client.start_s[np.maximum(at, 0)] + WINDOW_S)
    at = np.maximum(at, 0)
    rate = np.where(covered, client.rate[at], 0.0)
    return Client(client.name, start_s, rate, client.cv[at], client.weibull[at], client.lengths)


def _scale(clients: list[Client], params: ServeGenParams) -> float:
    """Return the factor of all rates. UserError for a time without requests, or with too many."""
    n = int(np.ceil(params.duration_s / WINDOW_S))
    mean = sum(float(client.rate.sum()) for client in clients) / n
    if mean == 0:
        raise UserError("no client sends a request in this time; choose another start_s or a longer duration_s.")
    scale = 1.0 if params.rate is None else params.rate / mean
    expected = mean * scale * params.duration_s
    check_turns(expected, "set a smaller rate or duration_s")
    return scale


def _check_windows(clients: int, duration_s: float) -> None:
    most_s = MOST_WINDOWS // clients * WINDOW_S
    if duration_s > most_s:
        raise UserError(
            f"duration_s={duration_s:g} is too long for {clients} clients, whose rates change every "
            f"{WINDOW_S:g} s; set {most_s:g} or less."
        )


def _arrivals(rng: np.random.Generator, client: Client, scale: float, duration_s: float) -> np.ndarray:
    times = arrivals.windows(rng, WINDOW_S, client.rate * scale, client.cv, client.weibull)
    return times[times < duration_s]


def _measured(
    clients: list[Client], per_client: list[np.ndarray], order: np.ndarray, params: ServeGenParams, streams: Streams
) -> tuple[Content, np.ndarray]:
    """Lengths from each client's own tables of the time, from another's where it has none; and the visual tokens."""
    rng = streams("lengths")
    anyones = next(laws for client in clients for laws in client.lengths.values() if laws)
    parts = []
    for client, times in zip(clients, per_client, strict=True):
        tables = {start_s: laws for start_s, laws in client.lengths.items() if laws}
        starts = np.array(list(tables) or [0.0])
        laws = list(tables.values()) or [anyones]
        which = np.clip(np.searchsorted(starts, params.start_s + times, side="right") - 1, 0, None)
        lengths = np.zeros((3, len(times)), np.int64)
        for index in np.unique(which).tolist():
            rows = np.flatnonzero(which == index)
            lengths[:, rows] = laws[index].sample(rng, len(rows))
        parts.append(lengths)
    inputs, outputs, visual = np.concatenate(parts, axis=1)[:, order]
    return Content(inputs, outputs, lambda rng, k: rng.choice(outputs, k), []), visual
