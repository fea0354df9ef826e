"""Kind `rag`: users who ask, see when the sources are chosen, and wait for the answer."""

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from engines.deployments import Deployment
from harness.client.client_params import ClientParams
from harness.events.log import EventLog
from harness.kinds.turns import load_of
from harness.metrics.definitions import Definition
from harness.metrics.metric import Metric
from harness.metrics.turns import summarise
from harness.request_tables.request_table import CLASS_COLUMNS, request_table
from harness.request_tables.steady_window import PHASE, Load, counted, phases, steady_window
from my_system.gateway import GENERATOR, RERANKER, Gateway
from my_system.params import RagParams
from workloads.errors import UserError
from workloads.trace import Trace, Turn

COURSE = ("session", "turn", "status", "turn_start_s", "turn_end_s", "completion_s", "ended_s", "send_delay_s")
TIMES = ("ttft_s", "tbt_mean_s", "tbt_max_s", "e2e_s")
"""What the table of turns has that a question has too; `scored_s`, turn_end_s to the last score, comes beside it."""
PERCENTILES = {"scored_p50": 50, "scored_p90": 90}


class User:
    """Asks one question; the other methods are what the server calls. Messages take `network_s` each way."""

    def __init__(self, turn: Turn, server: Gateway, log: EventLog) -> None:
        self._turn, self._server, self._log = turn, server, log
        self._loop = asyncio.get_running_loop()
        self._answered: asyncio.Future[None] = self._loop.create_future()
        self._reads = False

    async def ask(self, begin_s: float, patience_s: float) -> None:
        """Ask at `begin_s`, as scheduled, and wait; every latency counts from then."""
        self._event(begin_s, "turn_start")
        self._event(begin_s, "turn_end", self._loop.time() - begin_s)
        self._loop.call_later(self._turn.network_s, self._server.ask, self._turn, begin_s, self)
        try:
            async with asyncio.timeout_at(begin_s + patience_s):
                await self._answered
        except TimeoutError:
            self._event(self._loop.time(), "turn_failed")
            self._loop.call_later(self._turn.network_s, self._server.hang_up, self._turn)
        else:
            self._event(self._loop.time(), "turn_done")

    def scored(self) -> None:
        self._hear("scored")

    def text(self, tokens: int) -> None:
        self._hear("text" if self._reads else "first_text", tokens)
        self._reads = True

    def done(self) -> None:
        self._hear("reply_done")

    def _hear(self, kind: str, value: float = float("nan")) -> None:
        self._loop.call_later(self._turn.network_s, self._heard, kind, value)

    def _heard(self, kind: str, value: float) -> None:
        if self._answered.done():  # who has given up listens no more
            return
        self._event(self._loop.time(), kind, value)
        if kind == "reply_done":
            self._answered.set_result(None)

    def _event(self, at_s: float, kind: str, value: float = float("nan")) -> None:
        self._log.event(at_s, kind, self._turn.session, self._turn.turn, value=value)


class Rag:
    """See `harness.replays.kinds.kind.ReplayKind`, and `OwnMetrics` of `harness.kinds.kind`."""

    name, Timing = "rag", Load
    definitions = MappingProxyType(
        {
            name: Definition(
                "s",
                f"P{p} over questions: time until every passage has a score",
                "from the scheduled question (not the send), at the client",
                "lower",
            )
            for name, p in PERCENTILES.items()
        }
    )
    headline = ("scored_p50", "ttft_p50", "ttft_p90", "ttft_p99", "completed_rps")

    def check(self, params: RagParams, client: ClientParams, deployment: Deployment, trace: Trace) -> None:
        """UserError where nothing was retrieved, or a prompt with its answer is too long for its stage."""
        columns = trace.columns()
        if not (columns["history_tokens"] > 0).all():
            raise UserError("a question without retrieved text has nothing to score; set its history_tokens.")
        asked, answer = int(columns["input_tokens"].max()), int(columns["output_tokens"].max())
        for name, longest in (
            (RERANKER, asked + params.passage_tokens + 1),
            (GENERATOR, asked + params.kept * params.passage_tokens + answer),
        ):
            stage = deployment.stage(name)
            if longest > stage.max_model_len:
                raise UserError(
                    f"the {name} of deployment {deployment.name!r} takes {stage.max_model_len} tokens, and a question "
                    f"may need {longest}; set passage_tokens or kept to less."
                )

    def replicas(self, deployment: Deployment, trace: Trace) -> int:
        """Of the reranker, which is where a question waits."""
        return len(deployment.stage(RERANKER).gpus)

    async def play(self, trace: Trace, server: Gateway, log: EventLog, params: ClientParams, replicas: int) -> None:
        """Everybody asks when scheduled; in a closed loop so many at once do, and the others wait their turn."""
        loop = asyncio.get_running_loop()
        per = replicas if params.c_scope == "replica" else 1
        slots = asyncio.Semaphore(params.c * per) if params.c is not None else nullcontext()

        async def user(turn: Turn, at_s: float) -> None:
            await asyncio.sleep(max(0.0, at_s - loop.time()))
            async with slots:
                begin_s = at_s if params.c is None else loop.time()
                if params.begins(begin_s):
                    await User(turn, server, log).ask(begin_s, params.turn_timeout_s)

        async with asyncio.TaskGroup() as users:
            for session in trace.sessions:
                turn = session.turns[0]
                assert turn.arrival_s is not None
                users.create_task(user(turn, turn.arrival_s))

    def timing(self, params: RagParams, client: ClientParams, deployment: Deployment, trace: Trace) -> Load:
        """The load decides the steady window, over which metrics are."""
        return load_of(client)

    def requests(self, turns: pd.DataFrame, events: pd.DataFrame, timing: Load) -> pd.DataFrame:
        """A row for each question. Our events have the house's names, so its table does most of it."""
        table: Any = request_table(events, turns)
        scored = events.loc[events["kind"] == "scored", ["session", "t"]].set_index("session")["t"]
        table["scored_s"] = table["session"].map(scored) - table["turn_end_s"]
        table[PHASE] = phases(table, steady_window(table, turns, timing))
        columns = (*COURSE, PHASE, "scored_s", *TIMES, *(name for name in CLASS_COLUMNS if name in table))
        return table[list(columns)]

    def metrics(
        self,
        turns: pd.DataFrame,
        events: pd.DataFrame,
        steps: pd.DataFrame,
        requests: pd.DataFrame,
        end_s: float,
        timing: Load,
    ) -> Mapping[str, Metric]:
        """What was spoken, heard and thought is not asked of a question."""
        window = steady_window(requests, turns, timing)
        table = request_table(events, turns)
        found = summarise(table, steps, end_s, window=window, planned_turns=len(turns))
        asked = counted(requests)
        known = asked["scored_s"].dropna().to_numpy(float)
        for name, p in PERCENTILES.items():
            value = float(np.percentile(known, p)) if known.size else None
            found[name] = Metric(value, "s", known.size, len(asked) - known.size)
        return {n: m for n, m in found.items() if m.n or n in (*PERCENTILES, *self.headline)}


RAG = Rag()
