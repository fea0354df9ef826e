"""Seconds that vLLM-Omni's own processes take beside the modelled GPUs, from records of runtime vllm-omni.

    python -m tools.omni_overheads RECORD ...

RECORD is a point's folder, such as results/omni-runtime/points/ID, measured on a machine that did nothing else. Prints
medians over turns for `overheads` of a deployment (engines/deployments/qwen3_omni_2gpu_modelled.yaml).
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

FIRST_CHUNK = 4
"""Frames of the first chunk."""


def first(steps: Any, since_s: float) -> Any:
    """Return the first row of a table of steps that was submitted after `since_s`; None where there is none."""
    later = steps[steps["submitted_s"] > since_s]
    return None if later.empty else later.iloc[0]


def turns(record: Path) -> Iterator[dict[str, float]]:
    """Seconds of each turn from one place of the runtime to the next."""
    steps: Any = pd.read_parquet(record / "runtime_steps.parquet")
    events: Any = pd.read_parquet(record / "events.parquet")
    of = {stage: each.sort_values("submitted_s") for stage, each in steps.groupby("stage")}
    prompts = {stage: of[stage][of[stage]["prefill_tokens"] > 0] for stage in ("thinker", "talker")}
    chunks = of["vocoder"][of["vocoder"]["tokens"] == FIRST_CHUNK]
    packets = events[events["kind"] == "audio"].groupby(["session", "turn"])["t"].min()
    for event in events[events["kind"] == "turn_end"].itertuples():
        heard_s = packets.get((event.session, event.turn))
        thinker = first(prompts["thinker"], event.t)
        talker = None if thinker is None else first(prompts["talker"], thinker["end_s"])
        chunk = None if talker is None else first(chunks, talker["end_s"])
        if heard_s is None or thinker is None or talker is None or chunk is None or chunk["end_s"] > heard_s:
            continue
        second_s = of["thinker"][of["thinker"]["begin_s"] >= thinker["end_s"]]["end_s"].min()
        frames = of["talker"][of["talker"]["begin_s"] >= talker["begin_s"]].head(FIRST_CHUNK + 1)
        gaps_s = frames["submitted_s"].to_numpy()[1:] - frames["end_s"].to_numpy()[:-1]
        ended_s = frames.loc[frames["end_s"] <= chunk["submitted_s"], "end_s"].max()
        yield {
            "preprocess_s": thinker["submitted_s"] - event.t,
            "hop_s, text": talker["submitted_s"] - second_s,
            "fetch_s": float(np.median(gaps_s[gaps_s > 0])) if (gaps_s > 0).any() else np.nan,
            "hop_s, frames": chunk["submitted_s"] - ended_s,
            "deliver_s": heard_s - chunk["end_s"],
        }


def main() -> None:
    """Print the quartiles of all turns in ms."""
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    table = pd.DataFrame([turn for record in sys.argv[1:] for turn in turns(Path(record))])
    print((1e3 * table.quantile([0.25, 0.5, 0.75])).round(1).T.assign(turns=table.count()).to_string())


if __name__ == "__main__":
    main()
