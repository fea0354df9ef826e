"""On real CPU execution KV that comes back from host memory gives the tokens of `LLM.generate`."""

import random

import pytest

from tests.engines.host import Bench
from tests.engines.real import clean, executor, stock_tokens

SESSIONS, TURNS, SAID, REPLY = 6, 3, 96, 16


def conversation(preload: str, seed: int) -> tuple[Bench, dict[str, tuple[list[int], list[int]]]]:
    """Every session's turns, in an order that evicts each before it returns; returns name -> (prompt, reply).

    `preload`: off, on (pieces of the history before each turn) or cancelled (at any round).
    """
    rng = random.Random(seed)
    words = random.Random(4)  # what users say does not depend on what is done about it
    model = executor(prefix_caching=True, kv_pool_blocks=64, host_kv_gb=0.2)
    answers: dict[str, tuple[list[int], list[int]]] = {}
    with clean(model):
        model.scheduler.reset_connector_cache()
        bench = Bench(model=model)
        histories: dict[int, list[int]] = {session: [] for session in range(SESSIONS)}
        for turn in range(TURNS):
            for session, history in histories.items():
                prompt = history + [words.randrange(3, 4000) for _ in range(SAID * 2)]
                if preload != "off" and history:
                    bench.scheduler.remember(session, history)
                    for _ in range(rng.randrange(1, 12)):
                        bench.load(session, rng.randrange(1, 5))
                        bench.step()
                        if preload == "cancelled" and rng.random() < 0.4:
                            bench.scheduler.preloads.cancel(session)
                        if rng.random() < 0.7:
                            bench.arrive()
                name = f"{session}.{turn}"
                bench.ask(name, session, prompt, REPLY)
                if preload == "cancelled" and rng.random() < 0.5:
                    bench.step()
                    bench.scheduler.preloads.cancel(session)
                bench.settle()
                answers[name] = prompt, bench.said[name]
                histories[session] = prompt + bench.said[name]
                bench.check()
    return bench, answers


@pytest.mark.parametrize(("preload", "seed"), [("off", 0), ("on", 1), ("cancelled", 2), ("cancelled", 3)])
def test_history_from_the_host_gives_the_tokens_of_llm_generate(preload: str, seed: int):
    bench, answers = conversation(preload, seed)
    counters = bench.transfers.counters
    assert counters["h2d_bytes_foreground"] > 0 or preload == "on"
    assert (counters["h2d_bytes_background"] > 0) == (preload != "off")
    assert bench.scheduler.evictions.counters["evict_blocks"] > 0
    prompts, replies = zip(*answers.values(), strict=True)
    assert list(replies) == stock_tokens(prompts, REPLY)
    assert len({token for reply in replies for token in reply}) > 20, "weights that say one word prove nothing"
