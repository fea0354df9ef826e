"""Measure the steps of a grid, in a new order at each repetition.

Contexts are set up with the forward left out, since what the KV cache holds does not change how long it takes to read.
A canary runs before each cell, and one step settles before a measured one: it brings back the batch and the caches that
the step before it would have left.
"""

from collections.abc import Callable, Mapping, Sequence

from engines.core.policy import Plan, StageView
from engines.devices.step_time import totals
from harness.calibration.cells import SHORTEST, Chunk, Group
from harness.calibration.driver import Driver, Script, of, only
from harness.calibration.fit import Sample

IN_A_ROW = 3
"""Steps measured one after the other where the batch only decodes."""


class GridRun:
    """Measures cells on `driver`; `samples` grows in the order of time.

    `canary()` runs the canary kernel and returns its seconds. `show()` is called after each group.
    """

    def __init__(self, driver: Driver, canary: Callable[[], float], show: Callable[[], None]) -> None:
        self.samples: list[Sample] = []
        self._driver = driver
        self._canary = canary
        self._show = show

    def measure(self, cells: Mapping[Group, Sequence[Chunk | None]], repeats: int, until_s: float) -> Script:
        """Every cell `repeats` times; past `until_s` on the loop's clock no group begins."""
        driver = self._driver
        view = yield Plan()
        for _ in range(repeats):
            for index in driver.rng.permutation(len(cells)).tolist():
                if driver.loop.time() > until_s:
                    driver.counters["groups_left_out"] += 1
                    continue
                group = list(cells)[index]
                view = yield from self._group(view, group, cells[group])
                self._show()
        return view

    def _group(self, view: StageView, group: Group, chunks: Sequence[Chunk | None]) -> Script:
        driver = self._driver
        # Without decodes, one settles in their place and is held while a chunk is measured.
        decodes = [driver.request(driver.near(group.context or SHORTEST)) for _ in range(group.decodes or 1)]
        running = {request.id for request in decodes}
        view = yield from driver.decodes(view, decodes)
        for index in driver.rng.permutation(len(chunks)).tolist():
            chunk = chunks[index]
            canary_s = self._canary()
            if chunk is None:
                view = yield only(view, running)  # to settle
                for _ in range(IN_A_ROW):
                    view = yield only(view, running)
                    self._keep(group, None, canary_s)
            else:
                view = yield from self._chunk(view, group, chunk, running, canary_s)
        return (yield from driver.abort(view, decodes))

    def _chunk(
        self, view: StageView, group: Group, chunk: Chunk, running: set[str], canary_s: float
    ) -> Script:
        """Bring a prompt to its context, let one step settle, then measure the chunk on top of the decodes."""
        driver = self._driver
        request = driver.request(chunk.cached + chunk.tokens + (0 if chunk.ends else 4))
        view = yield from driver.submit(view, [request])
        both = running | {request.id}
        driver.skip(True)
        while (missing := chunk.cached - 1 - of(view, {request.id})[0].computed) > 0:
            view = yield only(view, {request.id}, {request.id: missing})
        driver.skip(False)
        view = yield only(view, both, {request.id: 1}) if chunk.cached else only(view, running)
        measured = both if group.decodes else {request.id}
        view = yield only(view, measured, {request.id: chunk.tokens})
        self._keep(group, chunk, canary_s)
        return (yield from driver.abort(view, [request]))

    def _keep(self, group: Group, chunk: Chunk | None, canary_s: float) -> None:
        """The step that has just ended, if it was what the plan said."""
        driver, total = self._driver, totals(self._driver.tap.rows)
        tokens = group.decodes + (chunk.tokens if chunk else 0)
        if total.tokens != tokens or total.requests != group.decodes + (chunk is not None):
            driver.counters["steps_not_as_planned"] += 1
            return
        self.samples.append(Sample((group, chunk), total, driver.elapsed_s, driver.loop.time(), canary_s))
