"""How busy each stage was, of whatever name, and how many requests its steps decoded together."""

import numpy as np
import pandas as pd

from harness.metrics.metric import Measured
from harness.metrics.stages import STAGES


def stage_use(steps: pd.DataFrame, begin_s: float, end_s: float) -> dict[str, Measured]:
    """The metrics of `stage_use_definitions` for the stages of a spoken reply, and for each other one that ran a step.

    Steps of a replica follow one another, so that their lengths within the span add up to the time it was busy.
    """
    stages = np.asarray(steps["stage"], str)
    t_s, dt_s = (steps[name].to_numpy(float) for name in ("t_s", "dt_s"))
    within_s = np.clip(np.minimum(t_s + dt_s, end_s) - np.maximum(t_s, begin_s), 0.0, None)
    decoded = (steps["tokens"] - steps["prefill_tokens"]).to_numpy(float)
    measured: dict[str, Measured] = {}
    for stage in [*STAGES, *sorted(set(stages) - set(STAGES))]:
        own = stages == stage
        replicas = np.unique(np.asarray(steps["replica"])[own]).size
        span_s = (end_s - begin_s) * replicas
        batch = decoded[own & (decoded > 0)]
        n = int(own.sum())
        measured[f"busy_{stage}"] = (float(within_s[own].sum() / span_s) if n and span_s > 0 else None, n, 0)
        for statistic, reduce in (("mean", np.mean), ("peak", np.max)):
            value = float(reduce(batch)) if batch.size else None
            measured[f"decode_batch_{stage}_{statistic}"] = (value, batch.size, 0)
    return measured
