"""The contract of `engines.core.router`: our routers, one of another package and the one of docs/extend.md keep it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.prefix_index import PrefixIndex
from engines.core.router import AssigningRouter, BindingRouter, ChoosingRouter, Waits
from engines.registry import ENGINES, ROUTINGS
from tests.engines import outside_router
from tests.engines.replays import cut_short, replay, voice_trace


def shown() -> Any:
    """The package of docs/extend.md, as a reader copies it."""
    page = (Path(__file__).parents[2] / "docs" / "extend.md").read_text()
    module: dict[str, Any] = {}
    exec(page.split("## A rule of routing")[1].split("```python\n")[1].split("```")[0], module)
    return module["COMPONENTS"]


ALL = {**ROUTINGS, **{each.name: each for each in (*outside_router.COMPONENTS, *shown())}}
REPLICAS = 4
EACH = pytest.mark.parametrize("rule", sorted(ALL))


class Apart:
    """A replica without an engine, as routing rules see it: prompts that were sent there count as cached."""

    block_size, max_running, max_tokens = 256, 64, 2**17

    def __init__(self) -> None:
        self.index = PrefixIndex()

    def cached_prefix(self, prompt: Sequence[int], features: Sequence[Any] = ()) -> int:
        return self.block_size * self.index.depth(self.block_hashes(prompt))

    def block_hashes(self, prompt: Sequence[int], features: Sequence[Any] = ()) -> Sequence[bytes]:
        return [bytes(prompt[:end]) for end in range(self.block_size, len(prompt) + 1, self.block_size)]

    def prefix_index(self) -> PrefixIndex:
        return self.index


def make(rule: str) -> Any:
    return ALL[rule].given({}).router([Apart() for _ in range(REPLICAS)])


SOME = st.lists(st.integers(0, REPLICAS - 1), min_size=1, unique=True).map(sorted)
PROMPTS = st.builds(lambda word, times: bytes([word]) * times, st.integers(0, 3), st.integers(0, 2000))
ACTS = st.one_of(
    st.tuples(st.just("route"), st.integers(0, 5), PROMPTS, st.none() | SOME),
    st.tuples(st.just("assign"), st.lists(PROMPTS, max_size=80)),
    st.tuples(st.just("done"), st.integers(0, 99)),
    st.tuples(st.just("forget"), st.integers(0, 5)),
)


class Asked:
    """A router under the contract, and what is under way: (replica, the arguments of `done` for the request)."""

    def __init__(self, rule: str) -> None:
        self.router = make(rule)
        self.under_way: list[tuple[int, int]] = []

    def route(self, session: int, prompt: bytes, among: list[int] | None) -> None:
        router, may = self.router, range(REPLICAS) if among is None else among
        chosen = router.choose(prompt, (), may) if isinstance(router, ChoosingRouter) else None
        home = router.home(session) if isinstance(router, BindingRouter) else None
        taken = router.route(session, prompt, among=among)
        assert taken in may
        assert chosen in (None, taken), "to choose counts nothing"
        assert home is None or taken == home or home not in may
        self.under_way.append((taken, len(prompt)))

    def assign(self, prompts: list[bytes]) -> None:
        if isinstance(self.router, AssigningRouter):
            waiting = [Waits(i, self.router.work(len(prompt), 10)) for i, prompt in enumerate(prompts)]
            assigned = self.router.assign(waiting)
            keys = [waits.key for waits, _ in assigned]
            assert set(keys) <= set(range(len(waiting)))
            assert len(set(keys)) == len(keys), "each at one replica"
            assert all(replica in range(REPLICAS) for _, replica in assigned)
            self.under_way += [(replica, waits.work) for waits, replica in assigned]

    def done(self, which: int) -> None:
        if self.under_way:
            self.router.done(*self.under_way.pop(which % len(self.under_way)))

    def forget(self, session: int) -> None:
        self.router.forget(session)


@EACH
@settings(max_examples=40)
@given(acts=st.lists(ACTS, max_size=40))
def test_every_router_keeps_the_contract(rule: str, acts: list[tuple[Any, ...]]):
    """Whatever is asked, in whichever order the contract lets it be asked."""
    asked = Asked(rule)
    router = asked.router
    for act, *arguments in acts:
        getattr(asked, act)(*arguments)
    if isinstance(router, ChoosingRouter):
        cached = router.cached(b"\0" * 1000, ())
        assert len(cached) == REPLICAS and all(0 <= tokens <= 1000 for tokens in cached)
    if isinstance(router, BindingRouter):
        assert all(router.home(session) in range(REPLICAS) for session in range(99))
    while asked.under_way:
        asked.done(0)
    assert not any(getattr(router, "load", ())), "a finished request counts nowhere"
    assert router.route(0, b"", among=[2]) == 2


@pytest.fixture
def outside(install) -> None:
    install(outside_router)


@pytest.mark.usefixtures("outside")
def test_a_router_of_another_package_serves_any_stage_with_its_own_parameters():
    trace = cut_short(voice_trace(sessions=16, turns=3.0, rate=20.0), after_s=0.3)
    built: list[Any] = []
    params = {"routing": "loyal", "talker_routing": "loyal", "moves_from": 2}
    replay("vllm_omni", params, {"deployment": "qwen3_omni_8gpu"}, {}, trace, 7, arrange=built.append)
    routers = built[0].gateway.pipeline.routers
    assert [type(each) for each in routers.values()] == [outside_router.Loyal] * 2
    assert all(each.load == [0] * 4 and not each.at for each in routers.values())
    assert ENGINES["metronome"].read({"routing": "loyal"}).flat()["moves_from"] == 4


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize("answer", [4, -1, None, "0"])
def test_a_router_that_returns_no_replica_is_named(answer: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outside_router.Loyal, "route", lambda *_: answer)
    trace = voice_trace(sessions=1)
    with pytest.raises(ValueError, match=rf"^Loyal\.route returned {answer!r}, but .* from 0 to 3$"):
        replay("vllm_omni", {"routing": "loyal"}, {"deployment": "qwen3_omni_8gpu"}, {}, trace, 7)
