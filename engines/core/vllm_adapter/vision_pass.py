"""Encoding a request's pictures as a pass of its own, before any step of the decoder's (Nova's stage VISION), with
vLLM's encoder and into vLLM's encoder cache.

vLLM encodes within the step that first prefills a picture. Here that step finds it encoded.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rehearsal.engines.core.vllm_adapter.execution import ModelExecutor


class VisionPass:
    """Of one executor. What was encoded stays until the scheduler frees it, so its request has to be run."""

    def __init__(self, executor: ModelExecutor) -> None:
        self._runner: Any = executor._runner
        self._scheduler = executor.scheduler
        self.layers: Any = self._runner.model.visual.blocks
        """The encoder's, as vLLM runs them."""
        self._batch = self._runner._batch_mm_inputs_from_scheduler
        self._runner._batch_mm_inputs_from_scheduler = self._not_encoded

    def run(self, request_id: str) -> int:
        """Encode what a waiting request shows; returns the number of pictures that were not there."""
        features = self._scheduler.requests[request_id].mm_features
        step = SimpleNamespace(
            scheduled_encoder_inputs={request_id: range(len(features))},
            ec_manager_metadata=None,
            free_encoder_mm_hashes=[],
        )
        known = self._runner.requests  # the worker learns of a request with its first step
        self._runner.requests = {request_id: SimpleNamespace(mm_features=features)}
        try:
            return len(self._runner._execute_mm_encoder(step))
        finally:
            self._runner.requests = known

    def _not_encoded(self, scheduled: Any) -> tuple[list[Any], ...]:
        found = zip(*self._batch(scheduled), strict=True)
        left = [item for item in found if item[0] not in self._runner.encoder_cache]
        hashes, inputs, places = zip(*left, strict=True) if left else ((), (), ())
        return [*hashes], [*inputs], [*places]
