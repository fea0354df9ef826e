"""A canary: a fixed piece of work beside the measured one, whose own time tells how fast the machine is just now.

A shared machine drifts by tens of per cent between seconds, and thread time drifts with it. Only a kernel with the
model's own memory profile follows its steps (we measured: matrix products over as many bytes of weights, correlation
0.94; a sum, a product within the cache or a Python loop do not help).
"""

import time

import torch

ROWS = 16
"""Rows of each product: [chosen] a small decode batch, bound by the weights it reads."""

SIDE = 1024
"""Each weight matrix has SIDE x SIDE numbers."""

MOST_BYTES = {"cpu": 64e6, "cuda": 2e9}
"""[chosen] a few ms on a core and on an H200; larger than their caches."""


class Canary:
    """Matrix products over about `weight_bytes` of weights on `device` ("cpu" or "cuda")."""

    def __init__(self, weight_bytes: float, device: str) -> None:
        self._cuda = device == "cuda"
        dtype = torch.bfloat16 if self._cuda else torch.float32
        matrix_bytes = SIDE * SIDE * dtype.itemsize
        count = max(1, round(min(weight_bytes, MOST_BYTES[device]) / matrix_bytes))
        self._weights = torch.full((count, SIDE, SIDE), 1e-3, dtype=dtype, device=device)
        self._rows = torch.ones((ROWS, SIDE), dtype=dtype, device=device)
        for _ in range(3):
            self.run()

    def run(self) -> float:
        """Run it once; wall-clock seconds."""
        if self._cuda:
            torch.cuda.synchronize()
        begun = time.perf_counter()
        with torch.inference_mode():
            for weight in self._weights:
                torch.mm(self._rows, weight)
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - begun
